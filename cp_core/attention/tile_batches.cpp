#include "cp_core/attention/tile_batches.h"

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

std::vector<TileBatch> split_by_keys(const std::vector<Tile>& tiles) {
  std::vector<TileBatch> batches;
  for (const Tile& tile : tiles) {
    const auto has_room = [&tile](const TileBatch& batch) { return batch.back().k_row + batch.back().n <= tile.k_row; };
    const auto batch = std::ranges::find_if(batches, has_room);
    if (batch == batches.end()) {
      batches.push_back({tile});
    } else {
      batch->push_back(tile);
    }
  }
  return batches;
}

std::optional<UniformTiles> uniform_tiles(const TileBatch& batch) {
  const Tile& first = batch.front();
  UniformTiles uniform{.batch = static_cast<std::int64_t>(batch.size()),
                       .m = first.m,
                       .n = first.n,
                       .q_row = first.q_row,
                       .k_row = first.k_row,
                       .q_stride = first.m,
                       .k_stride = first.n};
  if (batch.size() > 1) {
    uniform.q_stride = batch[1].q_row - first.q_row;
    uniform.k_stride = batch[1].k_row - first.k_row;
  }
  for (std::size_t b = 1; b < batch.size(); ++b) {
    const Tile& tile = batch[b];
    const Tile& before = batch[b - 1];
    if (tile.m != uniform.m || tile.n != uniform.n) return std::nullopt;
    if (tile.q_row - before.q_row != uniform.q_stride || tile.k_row - before.k_row != uniform.k_stride) {
      return std::nullopt;
    }
  }
  return uniform;
}

RowRange query_span(const TileBatch& batch) {
  return {.row = batch.front().q_row, .count = batch.back().q_row + batch.back().m - batch.front().q_row};
}

RowRange key_span(const TileBatch& batch) {
  return {.row = batch.front().k_row, .count = batch.back().k_row + batch.back().n - batch.front().k_row};
}

CumulativeLengths cumulative_lengths(const TileBatch& batch) {
  CumulativeLengths lengths{.q = {0}, .k = {0}};
  std::int64_t q_row = batch.front().q_row;
  std::int64_t k_row = batch.front().k_row;
  for (const Tile& tile : batch) {
    append(lengths, tile.q_row - q_row, 0);
    append(lengths, 0, tile.k_row - k_row);
    append(lengths, tile.m, tile.n);
    q_row = tile.q_row + tile.m;
    k_row = tile.k_row + tile.n;
  }
  return lengths;
}

CumulativeLengths compact_lengths(const TileBatch& batch) {
  CumulativeLengths lengths{.q = {0}, .k = {0}};
  for (const Tile& tile : batch) append(lengths, tile.m, tile.n);
  return lengths;
}

LargestTile largest_tile(const TileBatch& batch) {
  LargestTile largest;
  for (const Tile& tile : batch) {
    largest.m = std::max(largest.m, tile.m);
    largest.n = std::max(largest.n, tile.n);
  }
  return largest;
}

}  // namespace cp_pool
