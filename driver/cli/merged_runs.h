// Several earlier runs as one stream of events: the jobs of a CI, or a run that was killed and then rerun elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/cli/pending_cases.h"
#include "driver/events.h"
#include "driver/ledger.h"

namespace cp_pool {

// A run that is being read.
struct UnfinishedRun {
  RunStarted header;
  std::optional<RunFinished> end;
  std::size_t first_index = 0;
  std::map<std::string, int> first_generation;  // less 1, by key
  PendingCases pending;
  std::set<std::string> running;
  std::size_t finished = 0;
  std::optional<std::string> writer;  // the process that goes on with it
};

class MergedRuns {
 public:
  // The next event of a file, and when it was written. Those of one run stand together. Throws std::invalid_argument if
  // the first is no run_started.
  void take(Event event, std::optional<std::chrono::system_clock::time_point> at);

  // The end of a file. writer: the process that is writing it still, so that its last run goes on.
  void end_file(const std::optional<std::string>& writer);

  // Ends the last run. From run_started to run_finished: indices and generations of pools count on from run to run, and
  // cases that a run had not come to when its driver died are not-run. no_skip: as Ledger::close.
  std::vector<Event> finish(bool no_skip);

  [[nodiscard]] std::size_t count() const { return headers_.size(); }
  [[nodiscard]] bool compared() const { return compared_; }  // with times of another run
  // Titles of runs that go on, each with the process that runs it.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& runs_that_go_on() const { return going_on_; }
  // Titles of runs that ended in the middle of a stream, or of a cp-pool that did not name its cases.
  [[nodiscard]] const std::vector<std::string>& runs_of_unknown_length() const { return unknown_length_; }

 private:
  void begin(const RunStarted& header);
  void end_run();
  void count_on(PoolId& pool);
  void add_case(CaseFinished event);

  std::optional<UnfinishedRun> run_;
  std::vector<RunStarted> headers_;
  std::vector<Event> events_;
  std::vector<std::pair<std::string, std::string>> going_on_;
  std::vector<std::string> unknown_length_;
  std::map<std::string, int> generations_;  // the last of each key
  Ledger ledger_;
  bool exact_ = true;
  bool interrupted_ = false;
  bool compared_ = false;
  double driver_cpu_ms_ = 0;
  std::optional<double> only_duration_ms_;  // of a single run that ended
  std::optional<std::chrono::system_clock::time_point> first_;
  std::optional<std::chrono::system_clock::time_point> last_;
};

}  // namespace cp_pool
