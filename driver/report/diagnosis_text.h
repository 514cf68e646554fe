// A diagnosis as text: one sentence first, then the evidence. Terminal, JUnit and HTML show the same text.
#pragma once

#include <string>

#include "cases/diagnosis.h"

namespace cp_pool {

// True if the diagnosis names a cause, certain or likely.
bool names_a_cause(const Diagnosis& diagnosis);

// Returns one line:
// "cause: the window's left edge is 63 instead of 64 (explains out, dq within bounds)"
// "cause (likely): .. (explains out within bounds); or: no_mask, whole_keys"
// "cause: unknown: only dk and dv are wrong"
std::string cause_line(const Diagnosis& diagnosis);

// How to draw the picture of the mask (mask_text.h): not at all, coarse enough for a screen, or cell by cell.
enum class DrawMask { never, coarse, whole };

// Returns the cause, and indented below it the evidence, the largest rectangles of wrong pairs, and the picture. Each
// line ends with a newline.
std::string diagnosis_text(const Diagnosis& diagnosis, DrawMask draw = DrawMask::never);

}  // namespace cp_pool
