// Turns query runs, key runs and a mask into the rectangles (tiles) that an attention backend computes.
//
// This works for every mask, since the keys that a run of queries sees in a run of keys form a band, or one for each
// slice of the mask. Without the query
// rows and keys outside the band, a rectangle is left whose band is a window around its own bottom-right diagonal, with
// sides that are never negative. Variable-length attention kernels take such windows.
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
  // The positions of the tile's first query and first key in their sequence. The positions of a merged tile need not be
  // consecutive.
  std::int64_t sequence = 0;
  std::int64_t q_position = 0;
  std::int64_t k_position = 0;

  [[nodiscard]] bool full() const { return left == kInfiniteWindow && right == kInfiniteWindow; }
  bool operator==(const Tile&) const = default;
};

// Tiles with one window and disjoint query rows, in order of q_row, as one call of a variable-length kernel takes them.
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

// Joins neighbouring tiles that one rectangle with one window can replace: two full tiles, a full tile and the causal
// one to its right, or two tiles one below the other on one diagonal. The two chunks of a rank become one tile this way
// wherever the mask allows it.
std::vector<Tile> merge_tiles(const std::vector<Tile>& tiles);

// Puts each tile in the first group that has its window and only rows before it. tiles: in order of q_row.
TilePlan group_tiles(const std::vector<Tile>& tiles);

}  // namespace cp_pool
