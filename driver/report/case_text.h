// What is said of a case: its name and runs, why it failed, its checks, diagnosis and verdicts. The terminal and all
// reports say the same.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "cases/diagnosis.h"
#include "driver/core/events.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Returns the outcomes that occur: "119 pass, 4 skip". Empty if there are none.
std::string outcome_counts_text(const OutcomeCounts& counts, std::string_view between = ", ");

// Returns the ID, followed by the number of the run if the case runs several times: "ID (run 2 of 3)".
std::string case_name(const CaseFinished& event);

// Returns "pool cpu-2 #1".
std::string pool_name(const PoolId& pool);

// Returns the suite that reports show the case in: "cases" if it has none.
std::string suite_of(const CaseFinished& event);

// Returns "first run: fail: dq is wrong" on one line for a case that an earlier run had, too. Empty for other cases.
std::string first_run_text(const CaseFinished& event);
// Returns "earlier runs: 2 pass, 1 fail (the oldest first)" and a newline; empty if no earlier runs are known.
std::string earlier_runs_text(const CaseFinished& event);

class CaseRuns {
 public:
  void add(const CaseFinished& event);

  // Returns "fail in 1 of 3" or "fail in 1, crash in 2 of 3"; empty for a case that ran once or whose runs ended alike.
  [[nodiscard]] std::string difference(const std::string& id) const;

  // Returns lines, each ended by a newline, for the cases whose runs differ, limited to the first ones. Empty if there
  // are none.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, OutcomeCounts> counts_;  // by ID, for cases with several runs
};

// Returns at most the first KiB of foreign text, for a line of the terminal. The other reports have all of it.
std::string shortened(std::string_view foreign);
// The same, as a part of a line.
std::string in_line(std::string_view foreign);

// Returns "rank 1: dq: error 0.031 > bound 0.012 at [0, 17, 3] (baseline 0.005, max_abs 0.04, rms 0.001)", with the
// check's message if it has one.
std::string check_text(const Check& check);

// Returns "bounds x 3" for a case whose bounds were multiplied; empty for others.
std::string bound_factor_text(const CaseFinished& event);

// What '?' means, in the legend of this picture and of the drawn one.
inline constexpr std::string_view kUnclearWeights = "weights that are no whole numbers, or unknown";

// Returns a framed picture with queries downwards and keys to the right. The rank that owns the keys stands above each
// column, the rank that owns the queries before each row (rank_letter; '*' for several ranks). Lines mark where another
// sequence begins. A legend says how large a cell is and what the characters mean. Each line ends with a newline. The
// picture must be well formed (worker/protocol/diagnosis_intake.h).
std::string mask_text(const MaskPicture& picture);

// True if the diagnosis names a cause, certain or likely.
bool names_a_cause(const Diagnosis& diagnosis);

// How to draw the picture of the mask: not at all, coarse enough for a screen, or cell by cell.
enum class DrawMask { never, coarse, whole };

// Returns the cause, and indented below it the evidence, the largest rectangles of wrong pairs, and the picture. Each
// line ends with a newline.
std::string diagnosis_text(const Diagnosis& diagnosis, DrawMask draw = DrawMask::never);

// Returns the cause that the diagnosis names, or else the reason, which may only name the first wrong tensor.
const std::string& cause_or_reason(const CaseFinished& event);

// Returns, as lines that each end with a newline: the diagnosis if it names a cause, the reason, the failed checks by
// rank and tensor, a diagnosis that names no cause, and the error text of every rank that failed, with a readable stack
// (driver/core/stack_lines.h). A text that several of them share is shown once.
std::string failure_details(const CaseFinished& event, DrawMask draw = DrawMask::never);

// Returns " after 12 ms on pool cpu/2 #1, attempt 2", which follows the name of a case that failed.
std::string ending_text(const CaseFinished& event);

// Returns every rank's stderr tail under a line that names the rank; empty if there is none. Of consecutive lines that
// differ only in digits the first is shown, with the number of the others.
std::string stderr_details(const CaseFinished& event);

// Returns "expected to fail: REASON" for a case that is expected to fail, or that it passed unexpectedly; empty for
// other cases.
std::string expected_text(const CaseFinished& event);

// Returns the outcome for people, with "xfail" and "xpass" for a case that is expected to fail.
std::string_view outcome_word(const CaseFinished& event);
// Returns how urgent the case is. An expected failure is not urgent.
Urgency urgency_of(const CaseFinished& event);

// Cases that a page shows as one.
struct CaseGroup {
  std::size_t cases = 0;
  OutcomeCounts counts{};
  std::array<std::size_t, 3> by_urgency{};
  const CaseFinished* shown = nullptr;  // the first case of the highest urgency

  void add(const CaseFinished& event);
};

// Returns "STATE_LEAK (2 of 2), by ID" or "REAL (2 of 3)".
std::string verdict_line(const Verdict& verdict);

// Returns "verdict: REAL (2 of 3)", and below it the evidence, one sentence a line. Each line ends with a newline.
std::string verdict_text(const Verdict& verdict);

}  // namespace cp_pool
