#include "driver/core/case_drawing.h"

#include <algorithm>

#include "cases/dual_chunk.h"
#include "driver/core/case_shape.h"

namespace cp_pool {

namespace {

// Positions per block. The padded length and its chunks are multiples of it.
std::int64_t block_size(std::int64_t padded, int ranks, std::int64_t most_blocks) {
  const std::int64_t chunk = padded / dual_chunks(ranks);
  for (std::int64_t size = 1; size < chunk; ++size) {
    if (chunk % size == 0 && padded / size <= most_blocks) return size;
  }
  return std::max<std::int64_t>(chunk, 1);
}

// One side of a drawing.
struct Blocks {
  std::int64_t size = 1;  // positions per block, except for the block of replicated tokens
  std::vector<Interval> positions;
  std::vector<int> ranks;
  std::vector<std::int64_t> begins;

  void add(const Interval& block, int rank) {
    positions.push_back(block);
    ranks.push_back(rank);
    begins.push_back(block.begin);
  }
};

Blocks blocks_of(std::int64_t padded, std::int64_t replicated, int ranks, std::int64_t most_blocks) {
  Blocks blocks;
  if (replicated > 0) blocks.add({.begin = 0, .end = replicated}, CaseDrawing::kEveryRank);
  const std::int64_t cut = padded - replicated;
  const std::int64_t chunk = cut / dual_chunks(ranks);
  blocks.size = block_size(cut, ranks, most_blocks);
  for (std::int64_t at = 0; at < cut; at += blocks.size) {
    blocks.add({.begin = replicated + at, .end = replicated + at + blocks.size},
               owner_of_chunk(ranks, static_cast<int>(at / chunk)));
  }
  return blocks;
}

char block_of(const Mask& mask, const Interval& queries, const Interval& keys, std::int64_t sq, std::int64_t skv) {
  const Interval valid_queries = intersect(queries, {.begin = 0, .end = sq});
  const Interval valid_keys = intersect(keys, {.begin = 0, .end = skv});
  const std::int64_t all = valid_queries.size() * valid_keys.size();
  if (all == 0) return ' ';
  const std::int64_t seen = visible_pairs(mask, valid_queries, valid_keys, sq, skv);
  if (seen == 0) return '.';
  return seen == all ? '#' : '+';
}

}  // namespace

CaseDrawing draw_case(const Case& c, const SequenceLengths& lengths, std::size_t sequence, std::int64_t most_blocks) {
  const std::int64_t sq = lengths.valid_q[sequence];
  const std::int64_t skv = lengths.valid_kv[sequence];
  const auto blocks = [&](std::int64_t padded, std::int64_t valid, std::int64_t replicated) {
    return blocks_of(padded, replicated_tokens(replicated, valid), c.cp_size, most_blocks);
  };
  const Blocks queries = blocks(lengths.padded_q[sequence], sq, lengths.replicated_q);
  const Blocks keys = blocks(lengths.padded_kv[sequence], skv, lengths.replicated_kv);
  if (queries.positions.empty() || keys.positions.empty()) return {};
  CaseDrawing drawing{.q_per_block = queries.size,
                      .kv_per_block = keys.size,
                      .q_ranks = queries.ranks,
                      .kv_ranks = keys.ranks,
                      .q_begins = queries.begins,
                      .kv_begins = keys.begins};
  const Mask mask = make_mask(c);
  for (const Interval& row : queries.positions) {
    std::string& drawn = drawing.rows.emplace_back();
    for (const Interval& column : keys.positions) drawn += block_of(mask, row, column, sq, skv);
  }
  return drawing;
}

}  // namespace cp_pool
