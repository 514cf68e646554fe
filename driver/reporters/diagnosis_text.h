// Why a case failed, as text: one sentence first, evidence after. The same in the terminal, in JUnit and in HTML.
#pragma once

#include <string>

#include "cases/diagnosis.h"

namespace cp_pool {

// Whether it is certain or likely, and not unknown.
bool names_a_cause(const Diagnosis& diagnosis);

// "cause: the window's left edge is 63 instead of 64 (explains out, dq within bounds)"
// "cause (likely): .. (explains out within bounds); or: no_mask, whole_keys"
// "cause: unknown: only dk and dv are wrong"
std::string cause_line(const Diagnosis& diagnosis);

// Whether the picture of the mask is drawn (mask_text.h): not; so coarse that it fits on a screen; or cell by cell.
enum class DrawMask { never, coarse, whole };

// The cause, then, indented, the evidence, the largest rectangles of wrong pairs, and the picture. Lines, each ended by
// a newline.
std::string diagnosis_text(const Diagnosis& diagnosis, DrawMask draw = DrawMask::never);

}  // namespace cp_pool
