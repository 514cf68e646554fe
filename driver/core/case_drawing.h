// A drawing of one sequence's mask in blocks, with the ranks that own them, for `cp-pool explain`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/lengths.h"

namespace cp_pool {

struct CaseDrawing {
  static constexpr int kEveryRank = -1;

  std::int64_t q_per_block = 1;
  std::int64_t kv_per_block = 1;
  // One string a row of blocks: queries run downwards, keys to the right, padding included. The character of a block
  // says which of its pairs are visible: '#' all, '+' some, '.' none; ' ' is a block of padding alone.
  std::vector<std::string> rows = {};
  std::vector<int> q_ranks;            // rank that owns each row; kEveryRank: replicated tokens, which form one block
  std::vector<int> kv_ranks;           // rank that owns each column
  std::vector<std::int64_t> q_begins;  // position of the first query of each row
  std::vector<std::int64_t> kv_begins;
};

// Draws a sequence of the case. Borders of chunks fall between blocks, and a side has no more than most_blocks blocks
// unless it has more chunks. A sequence without queries or without keys gives an empty drawing.
CaseDrawing draw_case(const Case& c, const SequenceLengths& lengths, std::size_t sequence, std::int64_t most_blocks);

}  // namespace cp_pool
