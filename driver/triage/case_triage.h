// Finds out why a case failed, as far as running it again can show. A state machine: it says what to run next, is told
// how that ended, and decides. It runs nothing and reads no clock.
//
// 1. The case runs alone on a fresh pool, up to three times. Two failures: REAL. One: FLAKY.
// 2. If it never failed, it runs once after all cases that its pool had run before it, in their order. If it passes:
// FLAKY.
// 3. If it fails then, bisection finds a short end of that history after which the case still fails. The first case of
// that end is the suspect. If the case fails twice out of two after the suspect alone: STATE_LEAK. If it passes, the
// short end is run twice more; if the case fails each time: WARM_ONLY.
// INFRA is a failure that shows that the machine failed, and that never comes again without such a sign. If two replays
// contradict each other, the verdict is unknown.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases/case_outcome.h"
#include "driver/core/events.h"
#include "driver/core/run.h"

namespace cp_pool {

// How a case ended, in the run itself or in a replay.
struct CaseEnd {
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string reason = {};   // one line
  std::string machine = {};  // sign that the machine failed (machine_sign()), as a sentence; empty: none
};

class CaseTriage {
 public:
  // history: the IDs of the cases that the failed case's pool had run before it, in order.
  CaseTriage(CaseEnd failure, std::vector<std::string> history);

  // Returns the cases to send to a fresh pool before the failed case, as positions in the history; nullopt: the verdict
  // is known.
  [[nodiscard]] const std::optional<std::vector<std::size_t>>& next() const { return next_; }
  // Tells how that replay of the failed case ended.
  void ended(const CaseEnd& end);

  // While next() returns something: not_triaged, with the evidence so far.
  [[nodiscard]] const Verdict& verdict() const { return verdict_; }

 private:
  enum class Seen { fails, passes, fails_otherwise, machine, unjudged };
  // Thrown out of the middle of decide(): a further replay is needed (next_), or no verdict is possible.
  struct Stop {};

  void reconsider();
  // Both return true if the verdict is known.
  bool decide();
  bool decide_alone();
  bool conclude(VerdictKind kind, int k, int n);
  const CaseEnd& replay(std::size_t first, std::size_t count);
  bool fails_after(std::size_t first, std::size_t count);
  [[nodiscard]] Seen seen(const CaseEnd& end) const;
  void tell(std::string sentence) { verdict_.evidence.push_back(std::move(sentence)); }

  CaseEnd failure_;
  std::vector<std::string> history_;
  std::vector<CaseEnd> ends_;  // of the replays so far
  std::size_t used_ = 0;       // how many of them decide() has looked at
  std::optional<std::vector<std::size_t>> next_;
  Verdict verdict_;
};

// Returns the sign as a sentence that quotes the failure; empty if there is none. Signs are the driver's own words (the
// kernel killed a process for lack of memory, the clock was set, the machine slept) and messages of CUDA, NCCL and the
// kernel about failing devices. A worker that asks for more memory than there is gives no such sign.
std::string machine_sign(const CaseFinished& event);

struct FailureToTriage {
  CaseEnd end;
  std::vector<std::string> history = {};  // as for CaseTriage
  std::string kind;                       // equal for failures of the same kind
  double ms = 0;                          // duration of the failed case
  std::string unfit = {};                 // why replays cannot explain the failure, as a sentence; mostly empty
};

// Decides in which order the failures of a run are triaged, within the budget: first the cheapest to run again of each
// kind (failure_kind.h), in the order of their cost, then all others in the order of theirs.
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
