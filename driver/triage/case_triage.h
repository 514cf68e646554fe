// Why a case failed, as far as running it again can tell. A state machine: it says what is to be run next, is told what
// came of it, and decides. It runs nothing and reads no clock.
//
// 1. The case alone on a fresh pool, up to three times. Two failures: REAL. One: FLAKY.
// 2. If it never failed: once after all cases that its pool had run before it, in their order. A pass: FLAKY.
// 3. If that fails, bisection finds a short end of that history after which the case still fails, and its first case is
//    the suspect. The case fails twice out of two after the suspect alone: STATE_LEAK. It passes: the short end is run
//    twice more, and fails each time: WARM_ONLY.
// A failure that shows that the machine failed, and that does not come again without such a sign, is INFRA. Wherever
// two replays contradict each other, the verdict is unknown.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cases/case_outcome.h"
#include "driver/verdict.h"

namespace cp_pool {

// What came of a case when it was run, in the run itself or in a replay.
struct CaseEnd {
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string reason;   // one line
  std::string machine;  // what the machine did to it, as a sentence; empty: nothing is known
};

// A case that failed, and the IDs of the cases that its pool had run before it, in their order.
struct TriagedFailure {
  CaseEnd end;
  std::vector<std::string> history;
};

class CaseTriage {
 public:
  explicit CaseTriage(TriagedFailure failure);

  // The cases to send to a fresh pool before the case, as positions in the history; nullopt: the verdict is known.
  [[nodiscard]] std::optional<std::vector<std::size_t>> next() const;
  // What came of it.
  void ended(const CaseEnd& end);

  // Not triaged, with the evidence so far, while next() has something.
  [[nodiscard]] const Verdict& verdict() const { return verdict_; }

 private:
  enum class Step { alone, history, bisection, suspect, confirmation, over };
  enum class Seen { fails, passes, fails_otherwise, machine, unjudged };

  [[nodiscard]] Seen seen(const CaseEnd& end) const;
  void after_alone(Seen seen, const CaseEnd& end);
  void decide_alone();
  void after_history(Seen seen);
  void after_bisection(Seen seen);
  void after_suspect(Seen seen);
  void after_confirmation(Seen seen);
  void look_for_suspect();
  [[nodiscard]] const std::string& suspect() const;
  [[nodiscard]] std::vector<std::size_t> last_of_history(std::size_t count) const;
  void decide(VerdictKind kind, int k, int n);
  void tell(std::string sentence) { verdict_.evidence.push_back(std::move(sentence)); }

  TriagedFailure failure_;
  Step step_ = Step::alone;
  int alone_ = 0;      // replays that said something
  int fails_ = 0;      // of these
  int otherwise_ = 0;  // likewise: failed, with another outcome
  int machine_ = 0;    // likewise
  int unjudged_ = 0;   // further ones
  // Of the history, the last `fails_after_` cases make the case fail, and the last `passes_after_` do not.
  std::size_t fails_after_ = 0;
  std::size_t passes_after_ = 0;
  int after_suspect_ = 0;  // replays after the suspect alone; all of them failed
  int confirmed_ = 1;      // replays after the shortest end of the history
  Verdict verdict_;
};

}  // namespace cp_pool
