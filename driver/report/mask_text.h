// Draws the mask that a diagnosis saw in characters, for the terminal.
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

}  // namespace cp_pool
