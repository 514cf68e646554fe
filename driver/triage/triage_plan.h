// In which order the failures of a run are triaged, within which budget.
//
// Failures that tell most come first: of each kind of failure (failure_kind.h) the one that is cheapest to run again,
// these in the order of their cost, and then the others in the order of theirs.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/triage/case_triage.h"

namespace cp_pool {

struct FailureToTriage {
  TriagedFailure failure;
  std::string kind;        // equal for failures that are alike
  double ms = 0;           // that the case ran
  std::string unfit = {};  // why replays could tell nothing of it, as a sentence; mostly empty
};

class TriagePlan {
 public:
  TriagePlan(std::vector<FailureToTriage> failures, TriageLimits limits);

  struct Replay {
    std::size_t failure = 0;          // its place in the list
    std::vector<std::size_t> before;  // as CaseTriage::next
  };
  // spent: since the triage began. nullopt: all is decided, or the budget is spent.
  std::optional<Replay> next(std::chrono::milliseconds spent);
  void ended(const CaseEnd& end);
  // Nothing is run any more; why, as a sentence.
  void stop(const std::string& why);

  // What was decided since the last call: the place of the failure, and its verdict.
  std::vector<std::pair<std::size_t, Verdict>> take_verdicts();

  [[nodiscard]] int replays() const { return replays_; }
  [[nodiscard]] const TriageLimits& limits() const { return limits_; }

 private:
  void leave_undecided(const std::string& why);

  std::vector<FailureToTriage> failures_;
  TriageLimits limits_;
  std::vector<std::size_t> order_;
  std::size_t place_ = 0;  // in the order
  std::optional<CaseTriage> current_;
  int replays_ = 0;
  std::vector<std::pair<std::size_t, Verdict>> decided_;
};

}  // namespace cp_pool
