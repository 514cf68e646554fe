// The mask that a diagnosis saw, in characters, for the terminal.
#pragma once

#include <string>

#include "cases/diagnosis.h"

namespace cp_pool {

// Queries downwards, keys to the right, in a frame: above each column of cells the rank that owns its keys, before each
// row that of its queries ('0' to '9', then letters), and lines where another sequence begins. Below it says how much a
// cell is, and what the characters that occur mean. Lines, each ended by a newline; empty if the picture has no cell.
std::string mask_text(const MaskPicture& picture);

}  // namespace cp_pool
