// Decides in which order the failures of a run are triaged, within the budget.
//
// The cheapest failure to run again of each kind (failure_kind.h) comes first. These failures come in the order of
// their cost, followed by all others in the order of theirs.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/core/run.h"
#include "driver/triage/case_triage.h"

namespace cp_pool {

struct FailureToTriage {
  TriagedFailure failure;
  std::string kind;        // equal for failures of the same kind
  double ms = 0;           // duration of the failed case
  std::string unfit = {};  // why replays cannot explain the failure, as a sentence; mostly empty
};

class TriagePlan {
 public:
  TriagePlan(std::vector<FailureToTriage> failures, TriageLimits limits);

  struct Replay {
    std::size_t failure = 0;          // index in the list of failures
    std::vector<std::size_t> before;  // as from CaseTriage::next
  };
  // Returns the next replay; nullopt: everything is decided, or the budget is spent. spent: time since the triage
  // began.
  std::optional<Replay> next(std::chrono::milliseconds spent);
  void ended(const CaseEnd& end) { current_->ended(end); }
  // Ends the triage. why: a sentence.
  void stop(const std::string& why);

  // Returns the failures that were decided since the last call: index and verdict.
  std::vector<std::pair<std::size_t, Verdict>> take_verdicts() { return std::exchange(decided_, {}); }

  [[nodiscard]] int replays() const { return replays_; }
  [[nodiscard]] const TriageLimits& limits() const { return limits_; }

 private:
  std::vector<FailureToTriage> failures_;
  TriageLimits limits_;
  std::vector<std::size_t> order_;
  std::size_t place_ = 0;  // index in order_
  std::optional<CaseTriage> current_;
  int replays_ = 0;
  std::vector<std::pair<std::size_t, Verdict>> decided_;
};

}  // namespace cp_pool
