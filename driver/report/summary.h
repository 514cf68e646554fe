// The summary at the end of a run: reasons grouped, durations, and the ledger; and that of a search.
#pragma once

#include <cstddef>
#include <ranges>
#include <string>

#include "driver/core/events.h"
#include "driver/log/run_report.h"

namespace cp_pool {

// The ends of the cases, in the order in which they ended.
inline auto ends_of(const RunReport& run) {
  return run.cases | std::views::transform(&ReportedCase::end);
}

// Returns "80 expanded = 68 pass + 0 fail + 12 skip, 41.2 s": every outcome that is not zero, and always pass and fail.
// If passes are flaky, it has their number. It says so if the ledger does not add up, and what an incomplete report
// lacks.
std::string ledger_line(const RunFinished& run);

// Returns "flaky: crash, then pass on try 2", or "crash, then error on try 2" for a case that did not pass. Empty for a
// case that was tried once.
std::string tries_text(const ReportedCase& c);

// Returns lines, each ended by a newline, without the ledger. They are, in this order: durations of the cases that ran;
// whether repeated runs of a case gave the same bits and outcomes; outcomes of reruns; cases that passed on a later
// try; expected failures and unexpected passes; passes without figures; the number of cases whose ranks shared GPUs, of
// cases whose ranks share the work unevenly, and of cases judged with other bounds; notes of backends; why cases did
// not run (outcome, count, reason; the most frequent first); and the verdicts on failures.
std::string summary_text(const RunReport& run);

// Returns all failures together, although many lines may have been printed between them. Failures of one kind
// (FailureKinds) stand under the reason of the first, which is cut in its middle if it is long. Kinds and their cases
// are in the order of the list of cases. If there are many failures, it has the first ones of each kind and the number
// of the others. The command that reruns all of them follows, if there is one. Empty for fewer than `least` failures,
// since a single failure is easily found.
std::string list_of_failures(const RunReport& run, std::size_t least = 2);

// Returns how a search found a failure, whether it is flaky, the fields of the smallest case as JSON, and the command
// that runs it alone. Each line ends with a newline.
std::string found_text(const SearchFound& event);

// Returns the number of cases that a search tried, over which fields and edges; the cases that the worker skipped; the
// cases of earlier searches that pass now; and each finding with its case and command. Each line ends with a newline.
// Empty if the run was no search.
std::string search_summary(const RunReport& run);

}  // namespace cp_pool
