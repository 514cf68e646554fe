// The books of a run: every case ends in exactly one outcome, or the run says that its books are wrong.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

inline constexpr int kExitInterrupted = 130;
inline constexpr int kExitInternal = 70;
inline constexpr int kExitFailures = 100;
inline constexpr int kExitInfra = 96;

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
  std::array<std::size_t, kCaseOutcomes> counts_{};
  bool unknown_case_ = false;
};

// First that applies: 130 interrupted, 70 wrong books, 100 a failure or a case that was not run, 96 infra or with
// no_skip a skip, 0.
int exit_code(const RunFinished& finished, bool no_skip);

}  // namespace cp_pool
