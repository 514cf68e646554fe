// The summary at the end of a run: reasons grouped, durations, and the ledger.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/events.h"
#include "driver/reporters/case_runs.h"
#include "driver/reporters/case_tries.h"

namespace cp_pool {

// "119 pass, 4 skip": the outcomes that there are. Empty if there is none.
std::string outcome_counts_text(const OutcomeCounts& counts);

// "80 expanded = 68 pass + 0 fail + 12 skip, 41.2 s": every outcome that is not zero, pass and fail always; of the
// passes how many are flaky, if any. A ledger that does not add up says so.
std::string ledger_line(const RunFinished& run);

// The q-quantile (0 < q <= 1) by nearest rank; values must not be empty.
double quantile(std::vector<double> values, double q);

class Summary {
 public:
  void add(const CaseTried& event) { tries_.add(event); }
  void add(const CaseFinished& event);
  void add(const CaseVerdict& event);

  // Lines, each ended by a newline, without the ledger: durations of the cases that ran, whether several runs of one
  // case gave the same bits and ended alike, what came of reruns, which cases passed on a later try, which failed as
  // expected or passed unexpectedly, which passes no figures bear out, how many cases had ranks that shared GPUs, which
  // notes of backends they had, then why cases did not run (outcome, count, reason; the most frequent first), and the
  // verdicts on failures.
  [[nodiscard]] std::string text() const;

  // Lines: each failure on one, so that they stand together where hundreds of lines were printed between them; those
  // with the same reason under it. Of many the first, and the number of the others. A long reason lacks its middle.
  // Then the command that reruns all of them, if there is one. Empty for fewer than `least`: a single failure can be
  // found.
  [[nodiscard]] std::string failures(const std::optional<std::string>& rerun, std::size_t least = 2) const;

 private:
  [[nodiscard]] std::string repeats_text() const;
  [[nodiscard]] std::string expectations_text() const;
  void add_failure(const CaseFinished& event);
  [[nodiscard]] std::string reruns_text() const;
  [[nodiscard]] std::string verdicts_text() const;

  std::set<std::string> repeated_;              // IDs
  std::set<std::string> differing_;             // of these
  std::set<std::string> differing_unpromised_;  // likewise
  std::map<std::string, std::size_t> backend_notes_;
  std::map<std::string, std::size_t> expected_failures_;  // by why they were expected
  std::vector<std::string> passed_unexpectedly_;          // no failures: "ID: why it was expected to fail"
  std::size_t unverified_ = 0;                            // of the passes: by figures
  std::size_t sharing_ = 0;                               // cases whose ranks shared GPUs
  std::map<std::string, std::size_t> bound_factors_;      // "bounds x 3"
  struct SameReason {
    CaseOutcome outcome = CaseOutcome::error;
    std::string word;    // outcome_word
    std::string reason;  // its first line, shortened
    std::vector<std::string> ids;
  };
  std::vector<SameReason> failures_;  // in the order of their first cases
  CaseRuns runs_;
  CaseTries tries_;
  std::map<VerdictKind, std::vector<std::string>> verdicts_;  // a line of each
  std::vector<std::string> reruns_;                           // a line each, without its newline
  std::vector<double> durations_ms_;                          // of the cases that reached a worker and were not skipped
  std::map<std::pair<CaseOutcome, std::string>, std::size_t> reasons_;  // of skip, infra, cancelled, not_run
};

}  // namespace cp_pool
