#include "cp_core/attention/tile_lanes.h"

#include <algorithm>

namespace cp_pool {
namespace {

// Appends a sequence of these lengths, unless both are 0.
void append(CumulativeLengths& lengths, std::int64_t q, std::int64_t k) {
  if (q == 0 && k == 0) return;
  lengths.q.push_back(lengths.q.back() + static_cast<std::int32_t>(q));
  lengths.k.push_back(lengths.k.back() + static_cast<std::int32_t>(k));
}

}  // namespace

std::vector<Lane> split_by_keys(const std::vector<Tile>& tiles) {
  std::vector<Lane> lanes;
  for (const Tile& tile : tiles) {
    const auto has_room = [&tile](const Lane& lane) { return lane.back().k_row + lane.back().n <= tile.k_row; };
    const auto lane = std::ranges::find_if(lanes, has_room);
    if (lane == lanes.end()) {
      lanes.push_back({tile});
    } else {
      lane->push_back(tile);
    }
  }
  return lanes;
}

std::optional<UniformTiles> uniform_tiles(const Lane& lane) {
  const Tile& first = lane.front();
  UniformTiles uniform{.batch = static_cast<std::int64_t>(lane.size()),
                       .m = first.m,
                       .n = first.n,
                       .q_row = first.q_row,
                       .k_row = first.k_row,
                       .q_stride = first.m,
                       .k_stride = first.n};
  if (lane.size() > 1) {
    uniform.q_stride = lane[1].q_row - first.q_row;
    uniform.k_stride = lane[1].k_row - first.k_row;
  }
  for (std::size_t b = 1; b < lane.size(); ++b) {
    const Tile& tile = lane[b];
    const Tile& before = lane[b - 1];
    if (tile.m != uniform.m || tile.n != uniform.n) return std::nullopt;
    if (tile.q_row - before.q_row != uniform.q_stride || tile.k_row - before.k_row != uniform.k_stride) {
      return std::nullopt;
    }
  }
  return uniform;
}

RowRange query_span(const Lane& lane) {
  return {.row = lane.front().q_row, .count = lane.back().q_row + lane.back().m - lane.front().q_row};
}

RowRange key_span(const Lane& lane) {
  return {.row = lane.front().k_row, .count = lane.back().k_row + lane.back().n - lane.front().k_row};
}

CumulativeLengths cumulative_lengths(const Lane& lane) {
  CumulativeLengths lengths{.q = {0}, .k = {0}};
  std::int64_t q_row = lane.front().q_row;
  std::int64_t k_row = lane.front().k_row;
  for (const Tile& tile : lane) {
    append(lengths, tile.q_row - q_row, 0);
    append(lengths, 0, tile.k_row - k_row);
    append(lengths, tile.m, tile.n);
    q_row = tile.q_row + tile.m;
    k_row = tile.k_row + tile.n;
  }
  return lengths;
}

CumulativeLengths compact_lengths(const Lane& lane) {
  CumulativeLengths lengths{.q = {0}, .k = {0}};
  for (const Tile& tile : lane) append(lengths, tile.m, tile.n);
  return lengths;
}

LargestTile largest_tile(const Lane& lane) {
  LargestTile largest;
  for (const Tile& tile : lane) {
    largest.m = std::max(largest.m, tile.m);
    largest.n = std::max(largest.n, tile.n);
  }
  return largest;
}

}  // namespace cp_pool
