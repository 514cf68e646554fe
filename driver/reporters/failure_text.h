// The text of a case that did not pass, the same in the terminal, in JUnit and in HTML.
#pragma once

#include <string>
#include <string_view>

#include "driver/events.h"
#include "driver/reporters/diagnosis_text.h"

namespace cp_pool {

// Foreign text for a line of the terminal: of megabytes the first KiB. The other reports have all of it.
std::string shortened(std::string_view foreign);

// "rank 1: dq: error 0.031 > bound 0.012 at [0, 17, 3] (baseline 0.005, max_abs 0.04, rms 0.001)", with the check's
// message if it has one.
std::string check_text(const Check& check);

// "bounds x 3" for a case whose bounds were multiplied; empty for others.
std::string bound_factor_text(const CaseFinished& event);

// The cause that a diagnosis names, which says more than the tensor that was the first to be wrong; else the reason.
const std::string& why_it_failed(const CaseFinished& event);

// The diagnosis, if it names a cause; then the reason, the failed checks by rank and tensor, a diagnosis that names
// none, and every rank's error text, its stack readable (reporters/stack_lines.h). A text that two of them share is
// shown once. Lines, each ended by a newline.
std::string failure_details(const CaseFinished& event, DrawMask draw = DrawMask::never);

// A text that is equal for failures with the same cause: outcome, reason, failed checks, the cause that a diagnosis
// found, where a rank threw, and, for a timeout or crash, the last line of each rank's stderr. Addresses are left out.
std::string failure_signature(const CaseFinished& event);

// Every rank's stderr tail under a line that names the rank. Of lines that differ in digits alone the first is shown,
// and how many follow it. Empty if there is none.
std::string stderr_details(const CaseFinished& event);

// Of a case that is expected to fail: "expected to fail: REASON", or that it passed unexpectedly. Else empty.
std::string expected_text(const CaseFinished& event);

// What people read: the outcome, or "xfail" and "xpass" of a case that is expected to fail.
std::string_view outcome_word(const CaseFinished& event);
// Of the case in its run: a failure that was expected is none to look at.
Urgency urgency_of(const CaseFinished& event);

}  // namespace cp_pool
