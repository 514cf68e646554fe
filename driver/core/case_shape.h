// The cost of a case: visible pairs, floating point operations and bytes of each rank, derived from its mask and from
// which rank owns what. `cp-pool explain` and the figures of `--mode perf` use it. For replicated tokens the figures
// are those of our own attention, which computes whole sequences (cp_core/builtin/whole_sequences.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "cases/mask.h"

namespace cp_pool {

// The two chunks of a padded sequence that `rank` of `ranks` ranks owns.
std::vector<Interval> owned_chunks(std::int64_t padded, int ranks, int rank);

// The work of one rank. A tile is a chunk of its queries and a chunk of keys.
struct Compute {
  std::int64_t full_tiles = 0;   // tiles in which every query sees every key
  std::int64_t band_tiles = 0;   // tiles in which some pairs are visible
  std::int64_t empty_tiles = 0;  // tiles without a visible pair: nothing to compute
  std::int64_t pairs = 0;        // visible pairs of a query and a key, over all sequences, for one head
  std::int64_t heads = 0;        // query heads that the rank computes

  // A multiply-add counts as two operations. Forward: scores and weighted values. Backward: the scores again and four
  // products.
  [[nodiscard]] double forward_flops(const Case& c) const;
  [[nodiscard]] double backward_flops(const Case& c) const;
};
Compute compute_of(const Case& c, const SequenceLengths& lengths, int rank);
// The part of compute_of() with the keys that `owner` owns. `owner` is a place in the ring, which is made of the groups
// of ranks that split the heads (CommFacts::head_ranks).
Compute compute_with(const Case& c, const SequenceLengths& lengths, int rank, int owner);

// CommFacts::exchange and CommFacts::exchanges of the case, or those of ranks that merge parts.
std::string_view exchange_words(const Case& c);
std::vector<Exchange> exchanges_of(const Case& c, const SequenceLengths& lengths);

// The bytes that one rank sends to others in a step.
struct Traffic {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};

// The bytes of the rank that sends most: q, k, v, out, their gradients (those of k and v in fp32 where they are summed
// over ranks) and the statistics of rows. Bias, sinks and max_logit are not counted. With the backends cudnn and
// flash it is an upper bound, since contributions of single kernel calls may be sent as they are: in 16 bits, and of
// some rows only (docs/numerics.md).
Traffic traffic_of(const Case& c, const SequenceLengths& lengths);

// A drawing of one sequence's mask in blocks, with the ranks that own them, for `cp-pool explain`.
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
};

// Draws a sequence of the case. Borders of chunks fall between blocks, and a side has no more than most_blocks blocks
// unless it has more chunks. A sequence without queries or without keys gives an empty drawing.
CaseDrawing draw_case(const Case& c, const SequenceLengths& lengths, std::size_t sequence, std::int64_t most_blocks);

}  // namespace cp_pool
