// Divides a group of tiles into calls of a library's kernel. Pure arithmetic on rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cp_core/layout.h"
#include "cp_core/tiling.h"

namespace cp_pool {

// Tiles that one call can take: query rows and key rows are each disjoint and ascending. Two tiles that share key rows
// would write the same rows of dk and dv.
using TileBatch = std::vector<Tile>;

// Tiles as in a TileGroup: query rows disjoint, in order of q_row. Each tile is in one batch, in the first that has
// room; batches keep the order.
std::vector<TileBatch> split_by_keys(const std::vector<Tile>& tiles);

// Rectangles of one size at equal distances: batch item b has rows [q_row + b * q_stride, + m) and
// [k_row + b * k_stride, + n).
struct UniformTiles {
  std::int64_t batch = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t q_row = 0;
  std::int64_t k_row = 0;
  std::int64_t q_stride = 0;  // >= m; m for a single tile
  std::int64_t k_stride = 0;  // >= n; n for a single tile

  bool operator==(const UniformTiles&) const = default;
};

// nullopt if the tiles differ in size or in distance. The batch is not empty.
std::optional<UniformTiles> uniform_tiles(const TileBatch& batch);

// The rows from the first tile's first to the last tile's last.
RowRange query_span(const TileBatch& batch);
RowRange key_span(const TileBatch& batch);

// Cumulative lengths for a kernel that has no padded offsets: sequence s is rows [q[s], q[s + 1]) of query_span and
// [k[s], k[s + 1]) of key_span. A gap between tiles is made of sequences that have rows on one side only: they compute
// nothing.
struct CumulativeLengths {
  std::vector<std::int32_t> q;
  std::vector<std::int32_t> k;

  bool operator==(const CumulativeLengths&) const = default;
};
CumulativeLengths cumulative_lengths(const TileBatch& batch);

// The same of the tiles' rows laid one after the other, without gaps.
CumulativeLengths compact_lengths(const TileBatch& batch);

// The largest m and n of the tiles.
struct LargestTile {
  std::int64_t m = 0;
  std::int64_t n = 0;
};
LargestTile largest_tile(const TileBatch& batch);

}  // namespace cp_pool
