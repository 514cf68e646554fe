// Several earlier runs as one stream of events: the jobs of a CI, a run and the rerun of what failed in it, or a run
// that was killed and then rerun elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/cli/history/counted_runs.h"
#include "driver/cli/history/pending_cases.h"
#include "driver/events.h"
#include "driver/ledger.h"

namespace cp_pool {

// A run as its events file has it.
struct ReadRun {
  RunStarted header;
  std::optional<RunFinished> end;
  std::vector<Event> events;  // but for these two
  PendingCases pending;
  std::map<std::string, std::optional<Case>> running;  // by ID: the case, where its start names it
  std::set<std::size_t> of_id_alone;                   // indices of cases of which nothing else is known
  std::size_t finished = 0;                            // cases
  std::size_t indices = 0;                             // one more than the largest
  std::optional<std::string> writer;                   // the process that goes on with it
};

class MergedRuns {
 public:
  // The next event of a file, and when it was written. Those of one run stand together. Throws std::invalid_argument if
  // the first is no run_started.
  void take(Event event, std::optional<std::chrono::system_clock::time_point> at);

  // The end of a file. writer: the process that is writing it still, so that its last run goes on.
  void end_file(const std::optional<std::string>& writer);

  // Ends the last run. From run_started to run_finished, in the order in which the runs began: indices and generations
  // of pools count on from run to run; cases that a run had not come to when its driver died are not-run; a case that
  // several runs ran is that of the run that counts (counted_runs.h), with what came of it in the first. demands: as
  // of Ledger::close.
  std::vector<Event> finish(const Demands& demands);

  [[nodiscard]] std::size_t count() const { return runs_.size(); }
  // Titles of runs that go on, each with the process that runs it.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& runs_that_go_on() const { return going_on_; }
  // Titles of runs that ended in the middle of a stream, or of a cp-pool that did not name its cases.
  [[nodiscard]] const std::vector<std::string>& runs_of_unknown_length() const { return unknown_length_; }

 private:
  void end_run(ReadRun& run);
  void note_first_runs();
  void append(const ReadRun& run, std::size_t number, std::vector<Event>& out);

  std::vector<ReadRun> runs_;
  std::vector<std::pair<std::string, std::string>> going_on_;
  std::vector<std::string> unknown_length_;
  CountedRuns counted_;
  std::map<CaseKey, FirstRun> first_runs_;  // of cases that another run counts for
  std::map<std::string, int> generations_;  // the last of each key
  std::size_t first_index_ = 0;             // of the run that is appended
  Ledger ledger_;
  bool exact_ = true;
  bool interrupted_ = false;
  bool compared_ = false;
  std::optional<std::chrono::system_clock::time_point> first_;
  std::optional<std::chrono::system_clock::time_point> last_;
};

}  // namespace cp_pool
