// A case in words and a drawing: `cp-pool explain`.
#pragma once

#include <cstdint>
#include <string>

#include "cases/case.h"
#include "cases/lengths.h"

namespace cp_pool {

// The mask of one sequence, a character for each block of queries (down) and keys (across): '#' all pairs are visible,
// '+' some, '.' none, ' ' padding alone; blocks are small enough for chunk borders to fall between them. The
// replicated tokens are one block. Behind each row and above each column stands the rank that owns it, or '*'. Lines,
// each ended by a newline.
std::string draw_mask(const Case& c, const SequenceLengths& lengths, std::size_t sequence);

// The parts of an explanation, each of lines.
struct Explanation {
  std::string description;
  std::string sequences;  // their lengths
  std::string mask;       // of the longest
  std::string ownership;
  std::string work;  // what each rank sends and computes
};
Explanation explanation_of(const Case& c);

// What the case is, its lengths, its mask, who owns what, what each rank sends and computes. Lines.
std::string explain_case(const std::string& id, const Case& c);

// "64.0 KiB", "1.23 GFLOP".
std::string bytes_words(std::int64_t count);
std::string flops_words(double count);

}  // namespace cp_pool
