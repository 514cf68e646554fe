// The books of a run: every case ends in exactly one outcome, or the run says that its books are wrong.
#pragma once

#include <cstddef>
#include <vector>

#include "driver/events.h"
#include "driver/exit_code.h"

namespace cp_pool {

class Ledger {
 public:
  // A case that has to end in an outcome; returns its index.
  std::size_t expect();
  void record(std::size_t index, CaseOutcome outcome);

  [[nodiscard]] std::size_t expected() const { return outcomes_.size(); }
  [[nodiscard]] std::size_t count(CaseOutcome outcome) const;
  // Counts and exit code; interrupted as given. no_skip: a skipped case was not judged, either.
  [[nodiscard]] RunFinished close(bool interrupted, bool no_skip = false) const;

 private:
  std::vector<int> outcomes_;  // how many each case has got
  OutcomeCounts counts_{};
  bool unknown_case_ = false;
};

// The first that applies: interrupted, internal_error for wrong books, failed for a failure or a case that was not run,
// infra (with no_skip for a skip, too), ok.
int exit_code(const RunFinished& finished, bool no_skip);

}  // namespace cp_pool
