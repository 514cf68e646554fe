// Why a case failed, as text: one sentence first, evidence after. The same in the terminal, in JUnit and in HTML.
#pragma once

#include <string>

#include "cases/diagnosis.h"

namespace cp_pool {

// "cause: the window's left edge is 63 instead of 64 (explains out, dq within bounds)"
// "cause (likely): .. (explains out within bounds); or: no_mask, whole_keys"
// "cause: unknown: only dk and dv are wrong"
std::string cause_line(const Diagnosis& diagnosis);

// The cause, then, indented, the evidence and the largest rectangles of wrong pairs. Lines, each ended by a newline.
std::string diagnosis_text(const Diagnosis& diagnosis);

}  // namespace cp_pool
