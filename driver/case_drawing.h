// The mask of one sequence in blocks, and who owns them: what `cp-pool explain` draws.
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
  // Queries downwards, keys to the right, with their padding. A block is '#': all pairs are visible, '+': some, '.':
  // none, ' ': padding alone.
  std::vector<std::string> rows;
  std::vector<int> q_ranks;   // the rank that owns each row; kEveryRank: replicated tokens, which are one block
  std::vector<int> kv_ranks;  // and each column
  std::vector<std::int64_t> q_begins;  // the position at which each row begins
  std::vector<std::int64_t> kv_begins;
};

// Blocks are small enough for borders of chunks to fall between them, and no more than most_blocks a side, unless there
// are more chunks. A sequence without queries or without keys has no block.
CaseDrawing draw_case(const Case& c, const SequenceLengths& lengths, std::size_t sequence, std::int64_t most_blocks);

}  // namespace cp_pool
