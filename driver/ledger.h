// The books of a run: every case ends in exactly one outcome, or the run says that its books are wrong.
#pragma once

#include <cstddef>
#include <vector>

#include "driver/events.h"
#include "driver/exit_code.h"

namespace cp_pool {

// What of a run beside its failures is no success.
struct Demands {
  bool no_skip = false;      // a case that was skipped, and was not to be: nobody judged it
  bool some_judged = false;  // that every case was skipped
  bool flaky_fails = false;  // a case that passed on a later try: it is then a failure
};

class Ledger {
 public:
  // A case that has to end in an outcome; returns its index.
  std::size_t expect();
  void record(std::size_t index, CaseOutcome outcome, bool flaky = false);
  // Of a case that is recorded: what was expected of it.
  void note_expected(const CaseFinished& finished);

  [[nodiscard]] std::size_t expected() const { return outcomes_.size(); }
  [[nodiscard]] std::size_t count(CaseOutcome outcome) const;
  // Counts and exit code; interrupted as given.
  [[nodiscard]] RunFinished close(bool interrupted, const Demands& demands = {}) const;

 private:
  std::vector<int> outcomes_;  // how many each case has got
  OutcomeCounts counts_{};
  std::size_t flaky_ = 0;
  std::size_t expected_failures_ = 0;
  std::size_t unexpected_passes_ = 0;
  std::size_t strict_passes_ = 0;
  std::size_t expected_skips_ = 0;
  bool unknown_case_ = false;
};

// The first that applies: interrupted, internal_error for wrong books, failed for a failure that was not expected, a
// case that had to fail and did not, or one that was not run (and for what the demands say), infra (likewise), ok.
int exit_code(const RunFinished& finished, const Demands& demands);

// Skips that cp-pool.toml does not ask for.
std::size_t unexpected_skips(const RunFinished& finished);

// Whether there were cases, and every one was skipped.
bool all_skipped(const RunFinished& finished);

}  // namespace cp_pool
