// Divides a group of tiles into calls of a library's kernel. Pure arithmetic on rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cp_core/layout.h"
#include "cp_core/tiling.h"

namespace cp_pool {

// Tiles that one call can take: query rows and key rows are each disjoint and ascending. Tiles that share key rows
// would write the same rows of dk and dv.
using TileBatch = std::vector<Tile>;

// tiles: as in a TileGroup, with disjoint query rows and in order of q_row. Each tile goes to the first batch whose key
// rows all come before the tile's; batches keep the order of the tiles.
std::vector<TileBatch> split_by_keys(const std::vector<Tile>& tiles);

// Rectangles of one size at equal distances: batch item b has m query rows from q_row + b * q_stride on and n key rows
// from k_row + b * k_stride on.
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

// Returns nullopt if the tiles differ in size or in distance. The batch must not be empty.
std::optional<UniformTiles> uniform_tiles(const TileBatch& batch);

// The rows from the first row of the first tile to the last row of the last, gaps included.
RowRange query_span(const TileBatch& batch);
RowRange key_span(const TileBatch& batch);

// cu_seqlens for a kernel that takes no padded offsets: sequence s is rows [q[s], q[s + 1]) of query_span and [k[s],
// k[s + 1]) of key_span. A gap between tiles becomes sequences that have either queries or keys, for which the kernel
// computes nothing.
struct CumulativeLengths {
  std::vector<std::int32_t> q;
  std::vector<std::int32_t> k;

  bool operator==(const CumulativeLengths&) const = default;
};
CumulativeLengths cumulative_lengths(const TileBatch& batch);

// Cumulative lengths of buffers that have the tiles' rows one after the other, without gaps.
CumulativeLengths compact_lengths(const TileBatch& batch);

// The largest m and n of the tiles.
struct LargestTile {
  std::int64_t m = 0;
  std::int64_t n = 0;
};
LargestTile largest_tile(const TileBatch& batch);

}  // namespace cp_pool
