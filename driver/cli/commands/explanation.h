// `cp-pool explain`: a case in words, with a drawing of its mask, and as an HTML page.
#pragma once

#include <string>
#include <string_view>

#include "cases/case.h"
#include "cases/lengths.h"
#include "driver/core/adapter_outlook.h"

namespace cp_pool {

// Draws the mask of one sequence with a character for each block of queries (down) and keys (across): '#' if all pairs
// are visible, '+' if some are, '.' if none, ' ' for padding alone. Chunk borders fall between blocks, and the
// replicated tokens are one block. Behind each row and above each column stands the rank that owns it, or '*' for every
// rank, unless `owners` is false. Returns lines, each ended by a newline.
std::string draw_mask(const Case& c, const SequenceLengths& lengths, std::size_t sequence, bool owners = true);

// Returns the ID, the case in words, the lengths of its sequences, the mask of the longest one, its ownership, and what
// each rank sends and computes, as lines.
std::string explain_case(const std::string& id, const Case& c);
// The same for an adapter, which owns rows and exchanges data in its own way: what each rank computes stands in the
// place of these parts. adapter: its name for the text.
std::string explain_case(const std::string& id, const Case& c, const std::string& adapter,
                         const AdapterOutlook& outlook);

// The page begins with this text, by which --html recognises a page that it may replace.
inline constexpr std::string_view kExplanationStart =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/><title>cp-pool explain: ";

// Returns the document. It draws the masks of the case's sequences with their owners and tiles (the first few, if there
// are many different ones) and the exchanges of a step. It also lists what each rank computes, and ends with the text
// of explain_case.
std::string explanation_page(const std::string& id, const Case& c);

}  // namespace cp_pool
