// The summary at the end of a run: reasons grouped, durations, and the ledger; and that of a search.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/core/events.h"
#include "driver/core/failure_kind.h"
#include "driver/core/figures.h"
#include "driver/log/run_report.h"
#include "driver/report/case_text.h"
#include "driver/report/time_tables.h"

namespace cp_pool {

// Returns "80 expanded = 68 pass + 0 fail + 12 skip, 41.2 s": every outcome that is not zero, and always pass and fail.
// If passes are flaky, it has their number. It says so if the ledger does not add up, and what an incomplete report
// lacks.
std::string ledger_line(const RunFinished& run);

// Returns "flaky: crash, then pass on try 2", or "crash, then error on try 2" for a case that did not pass. Empty for a
// case that was tried once. `tries`: the outcomes of its earlier tries.
std::string tries_text(const CaseFinished& event, const std::vector<CaseOutcome>& tries);

class Summary {
 public:
  Summary() = default;
  explicit Summary(const RunReport& run);

  // Only for a view that shows the implementations nowhere else.
  void add(const RunStarted& event) { implementations_ = event.implementations; }
  void add(const CaseTried& event) { tries_[event.index].push_back(event.outcome); }
  void add(const CaseFinished& event);
  void add(const CaseVerdict& event);

  // Returns lines, each ended by a newline, without the ledger. They are, in this order: the implementations; durations
  // of the cases that ran; whether repeated runs of a case gave the same bits and outcomes; outcomes of reruns; cases
  // that passed on a later try; expected failures and unexpected passes; passes without figures; the number of cases
  // whose ranks shared GPUs, of cases whose ranks share the work unevenly, and of cases judged with other bounds; notes
  // of backends; why cases did not run (outcome, count, reason; the most frequent first); and the verdicts on failures.
  [[nodiscard]] std::string text() const;

  // Returns all failures together, although many lines may have been printed between them. Failures of one kind
  // (FailureKinds) stand under the reason of the first, which is cut in its middle if it is long. Kinds and their cases
  // are in the order of the list of cases. If there are many failures, it has the first ones of each kind and the
  // number of the others. The command that reruns all of them follows, if there is one. Empty for fewer than `least`
  // failures, since a single failure is easily found.
  [[nodiscard]] std::string failures(const std::optional<std::string>& rerun, std::size_t least = 2) const;

 private:
  struct Failed {
    std::size_t index = 0;  // of the case
    std::string name;       // case_name
    std::string word;       // outcome_word
    std::string reason;     // its first line, shortened
  };

  void add_tries(const CaseFinished& event);
  [[nodiscard]] std::string repeats_text() const;
  [[nodiscard]] std::string tries_text() const;
  [[nodiscard]] std::string expectations_text() const;
  void add_failure(const CaseFinished& event);
  static std::string kind_text(const std::vector<Failed>& kind, std::size_t most);
  [[nodiscard]] std::string verdicts_text() const;

  std::vector<std::string> implementations_;
  std::set<std::string> repeated_;              // IDs
  std::set<std::string> differing_;             // IDs of those whose bits differ although they were promised
  std::set<std::string> differing_unpromised_;  // IDs of those whose bits differ and were not promised
  std::map<std::string, std::size_t> backend_notes_;
  std::map<std::string, std::size_t> expected_failures_;  // counts by the reason of the expectation
  std::vector<std::string> passed_unexpectedly_;  // those that are no failures: "ID: why it was expected to fail"
  std::size_t unverified_ = 0;                    // number of passes that no figures verify
  std::size_t checked_by_itself_ = 0;             // number of passes that figures do not apply to
  std::size_t sharing_ = 0;                       // number of cases whose ranks shared GPUs
  std::size_t uneven_ = 0;                        // number of cases with an uneven_share
  LargestShare most_uneven_;                      // the largest of these
  std::string most_uneven_id_;
  std::map<std::string, std::size_t> bound_factors_;  // counts by "bounds x 3"
  FailureKinds kinds_;
  std::vector<std::vector<Failed>> failures_;  // by kind
  CaseRuns runs_;
  std::map<std::size_t, std::vector<CaseOutcome>> tries_;     // outcomes of earlier tries, by index
  std::vector<std::string> flaky_;                            // one line each, without its newline
  std::size_t in_vain_ = 0;                                   // number of cases whose further tries did not pass either
  std::map<VerdictKind, std::vector<std::string>> verdicts_;  // one line for each
  std::vector<std::string> reruns_;                           // one line each, without its newline
  FirstUses first_uses_;
  Durations durations_ms_;  // of the cases that reached a worker and were not skipped
  std::map<std::pair<CaseOutcome, std::string>, std::size_t> reasons_;  // counts for skip, infra, cancelled and not_run
};

// Returns how a search found a failure, whether it is flaky, the fields of the smallest case as JSON, and the command
// that runs it alone. Each line ends with a newline.
std::string found_text(const SearchFound& event);

// Returns the number of cases that a search tried, over which fields and edges; the cases that the worker skipped; the
// cases of earlier searches that pass now; and each finding with its case and command. Each line ends with a newline.
std::string search_summary(const SearchFinished& event, const std::vector<SearchFound>& found);

}  // namespace cp_pool
