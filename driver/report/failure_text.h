// The text of a case that did not pass, the same in the terminal, in JUnit and in HTML.
#pragma once

#include <string>
#include <string_view>

#include "driver/core/events.h"
#include "driver/report/diagnosis_text.h"

namespace cp_pool {

// Returns at most the first KiB of foreign text, for a line of the terminal. The other reports have all of it.
std::string shortened(std::string_view foreign);

// Returns "rank 1: dq: error 0.031 > bound 0.012 at [0, 17, 3] (baseline 0.005, max_abs 0.04, rms 0.001)", with the
// check's message if it has one.
std::string check_text(const Check& check);

// Returns "bounds x 3" for a case whose bounds were multiplied; empty for others.
std::string bound_factor_text(const CaseFinished& event);

// Returns the cause that the diagnosis names, or else the reason, which may only name the first wrong tensor.
const std::string& why_it_failed(const CaseFinished& event);

// Returns, as lines that each end with a newline: the diagnosis if it names a cause, the reason, the failed checks by
// rank and tensor, a diagnosis that names no cause, and the error text of every rank that failed, with a readable stack
// (driver/core/stack_lines.h). A text that several of them share is shown once.
std::string failure_details(const CaseFinished& event, DrawMask draw = DrawMask::never);

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

}  // namespace cp_pool
