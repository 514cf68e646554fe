// Merges several earlier runs into one stream of events: the jobs of a CI, a run and the rerun of its failures, or a
// run that was killed and then rerun elsewhere.
#pragma once

#include <set>
#include <span>

#include "driver/core/ledger.h"
#include "driver/log/run_log.h"

namespace cp_pool {

// A run as read from its events file.
struct ReadRun : LoggedRun {
  std::vector<Event> events;          // but for the first and the last
  std::set<std::size_t> of_id_alone;  // indices of cases of which only the ID is known
  std::size_t finished = 0;           // number of finished cases
  std::size_t indices = 0;            // the largest index of a case, plus one
  std::optional<std::string> writer;  // the process that is still writing the run
};

class MergedRuns {
 public:
  // Reads the runs of an events file, which `what` names in errors: "the file". Returns them; they stay where they are
  // until the next file. Throws CommandError (bad_input).
  std::span<const ReadRun> read(const std::filesystem::path& file, std::string_view what);

  // Takes the next event of a file, with the time at which it was written. Events of one run have to come one after the
  // other. Throws std::invalid_argument if the first event is no run_started.
  void take(Event event, std::optional<std::chrono::system_clock::time_point> at);

  // Ends a file. `writer` is the process that is still writing it, if there is one; then its last run goes on.
  void end_file(const std::optional<std::string>& writer);

  // Ends the last run and returns the events from run_started to run_finished, with the runs in the order in which they
  // began. Indices of cases and generations of pools count on from run to run. Cases that a run had not started when
  // its driver died are not-run. A case that several runs have is taken from the run that counts (run_log.h),
  // together with its outcome in the first. `demands` is as for Ledger::close.
  std::vector<Event> finish(const Demands& demands);

  // The titles of runs that go on, each with the process that runs it.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& unfinished_runs() const { return going_on_; }
  // The titles of runs whose remaining cases are unknown: they were streams that were cut, or their version of cp-pool
  // did not write the IDs of its cases.
  [[nodiscard]] const std::vector<std::string>& runs_of_unknown_length() const { return unknown_length_; }

 private:
  void end_run(ReadRun& run);
  void note_first_runs();
  void append(const ReadRun& run, std::size_t number, std::vector<Event>& out);

  std::vector<ReadRun> runs_;
  std::vector<std::pair<std::string, std::string>> going_on_;
  std::vector<std::string> unknown_length_;
  std::map<std::string, std::string> overridden_;  // by ID: implementations that overrides named for cases
  CountedRuns counted_;
  std::map<CaseKey, FirstRun> first_runs_;    // the first runs of cases whose outcome comes from another run
  std::map<std::string, int> generations_;    // the last generation of each pool key
  std::vector<std::string> implementations_;  // as in the header of all runs
  std::size_t first_index_ = 0;               // the index of the first case of the run that is being appended
  Ledger ledger_;
  bool exact_ = true;
  bool interrupted_ = false;
  bool compared_ = false;
  std::optional<std::chrono::system_clock::time_point> first_;
  std::optional<std::chrono::system_clock::time_point> last_;
};

// Returns sentences about the shards that are missing among these runs, and about cases that no shard has, that several
// have, or that were not selected. Runs that are no shards do not count, and a shard that was run again counts once.
// Empty: nothing is missing.
std::vector<std::string> missing_of_shards(const std::vector<RunStarted>& runs);

}  // namespace cp_pool
