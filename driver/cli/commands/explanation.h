// `cp-pool explain`: a case in words, with a drawing of its mask, and as an HTML page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cases/case.h"
#include "cases/lengths.h"
#include "driver/cli/adapter_skips.h"

namespace cp_pool {

// Draws the mask of one sequence with a character for each block of queries (down) and keys (across): '#' if all pairs
// are visible, '+' if some are, '.' if none, ' ' for padding alone. Chunk borders fall between blocks, and the
// replicated tokens are one block. Behind each row and above each column stands the rank that owns it, or '*' for every
// rank, unless `owners` is false. Returns lines, each ended by a newline.
std::string draw_mask(const Case& c, const SequenceLengths& lengths, std::size_t sequence, bool owners = true);

// The parts of an explanation, each one or more lines.
struct Explanation {
  std::string description;
  std::string sequences;  // their lengths
  std::string mask;       // of the longest sequence
  std::string ownership;
  std::string work;  // what each rank sends and computes
};
Explanation explanation_of(const Case& c);

// Returns the ID and all parts of the explanation, as lines.
std::string explain_case(const std::string& id, const Case& c);
// The same for an adapter, which owns rows and exchanges data in its own way: what each rank computes stands in the
// place of these parts. adapter: its name for the text.
std::string explain_case(const std::string& id, const Case& c, const std::string& adapter,
                         const AdapterOutlook& outlook);

// Format a count with its unit: "64.0 KiB", "1.23 GFLOP".
std::string bytes_words(std::int64_t count);
std::string flops_words(double count);

// The page begins with this text, by which --html recognises a page that it may replace.
inline constexpr std::string_view kExplanationStart =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/><title>cp-pool explain: ";

// Returns the document. It draws the masks of the case's sequences with their owners and tiles (the first few, if there
// are many different ones) and the exchanges of a step. It also lists what each rank computes, and ends with the text
// of explain_case.
std::string explanation_page(const std::string& id, const Case& c);

}  // namespace cp_pool
