// The books of a run: every case has to end in exactly one outcome, else the run reports that its books are wrong.
#pragma once

#include <cstddef>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

// The conditions besides failures that make a run unsuccessful.
struct Demands {
  bool no_skip = false;      // a skip that was not expected counts as a case that nobody judged
  bool some_judged = false;  // at least one case must be judged: a run that skipped every case is unsuccessful
  bool flaky_fails = false;  // a pass on a later try counts as a failure
  bool whole = false;        // of a report: the shards have to make up the whole selection
  bool partial = false;      // what they lack is told, but the exit code does not depend on it
};

// The number of cases of all outcomes.
std::size_t total_of(const OutcomeCounts& counts);

class Ledger {
 public:
  // Adds a case, which has to end in an outcome. Returns its index.
  std::size_t expect();
  void record(std::size_t index, CaseOutcome outcome, bool flaky = false);
  // Counts whether a case that was recorded ended as expected.
  void note_expected(const CaseFinished& finished);

  [[nodiscard]] std::size_t expected() const { return outcomes_.size(); }
  // Returns run_finished with counts and exit code, and with `interrupted` as given.
  [[nodiscard]] RunFinished close(bool interrupted, const Demands& demands = {}) const;

 private:
  std::vector<int> outcomes_;  // number of outcomes that each case has got
  RunFinished so_far_;         // its counts
  bool unknown_case_ = false;
};

// Returns the first that applies: interrupted; internal_error if the books are wrong; failed for an unexpected failure,
// for an unexpected pass that is strict, for a case that was not run, and for a flaky pass if demands.flaky_fails;
// infra for a case that was not judged, for skips as demands.no_skip and demands.some_judged say, and for an incomplete
// report unless it is accepted; ok.
int exit_code(const RunFinished& finished, const Demands& demands);

// Number of skips that cp-pool.toml does not ask for.
std::size_t unexpected_skips(const RunFinished& finished);

// Whether there were cases and every one was skipped.
bool all_skipped(const RunFinished& finished);

}  // namespace cp_pool
