// A diagnosis as text: one sentence first, then the evidence. Terminal, JUnit and HTML show the same text.
#pragma once

#include <string>
#include <string_view>

#include "cases/diagnosis.h"

namespace cp_pool {

// What '?' means, in the legend of this picture and of the drawn one.
inline constexpr std::string_view kUnclearWeights = "weights that are no whole numbers, or unknown";

// Returns a framed picture with queries downwards and keys to the right. The rank that owns the keys stands above each
// column, the rank that owns the queries before each row (rank_letter; '*' for several ranks). Lines mark where another
// sequence begins. A legend says how large a cell is and what the characters mean. Each line ends with a newline; the
// text is empty if the picture has no cell.
std::string mask_text(const MaskPicture& picture);

// True if the diagnosis names a cause, certain or likely.
bool names_a_cause(const Diagnosis& diagnosis);

// Returns one line:
// "cause: the window's left edge is 63 instead of 64 (explains out, dq within bounds)"
// "cause (likely): .. (explains out within bounds); or: no_mask, whole_keys"
// "cause: unknown: only dk and dv are wrong"
std::string cause_line(const Diagnosis& diagnosis);

// How to draw the picture of the mask: not at all, coarse enough for a screen, or cell by cell.
enum class DrawMask { never, coarse, whole };

// Returns the cause, and indented below it the evidence, the largest rectangles of wrong pairs, and the picture. Each
// line ends with a newline.
std::string diagnosis_text(const Diagnosis& diagnosis, DrawMask draw = DrawMask::never);

}  // namespace cp_pool
