// From (query runs, key runs, mask) to the rectangles that an attention backend computes.
//
// Why it works for every mask: the keys that a run of queries sees in a run of keys form a band. Without the query rows
// and keys outside the band, what is left is a rectangle whose band is a window around its own bottom-right diagonal,
// never negative: what variable-length attention kernels take.
#pragma once

#include <cstdint>
#include <vector>

#include "cases/mask.h"
#include "cp_core/partition.h"

namespace cp_pool {

// Query rows [q_row, q_row + m) against key rows [k_row, k_row + n) of packed tensors. Row ii sees key jj (both counted
// from the tile's own corner) iff -left <= jj - (ii + n - m) <= right; kInfiniteWindow = no limit on that side. A tile
// has m > 0, n > 0, and every row and every key takes part.
struct Tile {
  std::int64_t q_row = 0;
  std::int64_t k_row = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t left = kInfiniteWindow;
  std::int64_t right = kInfiniteWindow;
  // Where the tile's corner lies in the sequence. A merged tile may continue elsewhere.
  std::int64_t sequence = 0;
  std::int64_t q_position = 0;
  std::int64_t k_position = 0;

  [[nodiscard]] bool full() const { return left == kInfiniteWindow && right == kInfiniteWindow; }
  bool operator==(const Tile&) const = default;
};

// Tiles with one window whose query rows are disjoint, in order of q_row: one call of a variable-length kernel.
struct TileGroup {
  std::int64_t left = kInfiniteWindow;
  std::int64_t right = kInfiniteWindow;
  std::vector<Tile> tiles;
};

using TilePlan = std::vector<TileGroup>;

// Valid lengths of each sequence. Positions beyond them are padding, which no tile contains.
struct ValidLengths {
  const std::vector<std::int64_t>& q;
  const std::vector<std::int64_t>& kv;
};

// The tiles of all (query, key) pairs that see each other, each pair in exactly one tile; in order of q_row, then
// k_row.
std::vector<Tile> make_tiles(const std::vector<Run>& q_runs, const std::vector<Run>& k_runs,
                             const ValidLengths& lengths, const Mask& mask);

// Joins neighbours where one rectangle with one window means the same: two full tiles, or a full tile and the causal
// one beside it. The two chunks of a rank become one tile this way wherever the mask allows it. Merged tiles may span
// two places of a sequence.
std::vector<Tile> merge_tiles(const std::vector<Tile>& tiles);

TilePlan group_tiles(const std::vector<Tile>& tiles);

}  // namespace cp_pool
