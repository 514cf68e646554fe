#include "cp_core/attention/cudnn/cudnn_batch.h"

#include <set>
#include <utility>

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using Pairs = std::multiset<std::pair<std::int64_t, std::int64_t>>;

bool tile_shows(const Tile& tile, std::int64_t i, std::int64_t j) {
  const std::int64_t offset = j - (i + tile.n - tile.m);
  return (tile.left == kInfiniteWindow || offset >= -tile.left) &&
         (tile.right == kInfiniteWindow || offset <= tile.right);
}

Pairs pairs_of(const std::vector<Tile>& tiles) {
  Pairs pairs;
  for (const Tile& tile : tiles) {
    for (std::int64_t i = 0; i < tile.m; ++i) {
      for (std::int64_t j = 0; j < tile.n; ++j) {
        if (tile_shows(tile, i, j)) pairs.emplace(tile.q_row + i, tile.k_row + j);
      }
    }
  }
  return pairs;
}

// Whether every row and every key takes part, as tiling promises.
bool trimmed(const Tile& tile) {
  const Pairs pairs = pairs_of({tile});
  std::set<std::int64_t> rows;
  std::set<std::int64_t> keys;
  for (const auto& [row, key] : pairs) {
    rows.insert(row);
    keys.insert(key);
  }
  return std::ssize(rows) == tile.m && std::ssize(keys) == tile.n;
}

std::vector<Tile> all_small_tiles() {
  std::vector<Tile> tiles;
  for (std::int64_t m = 1; m <= 6; ++m) {
    for (std::int64_t n = 1; n <= 6; ++n) {
      for (std::int64_t left = kInfiniteWindow; left < n - 1; ++left) {
        for (std::int64_t right = kInfiniteWindow; right < m - 1; ++right) {
          const Tile tile{.m = m, .n = n, .left = left, .right = right};
          if (trimmed(tile)) tiles.push_back(tile);
        }
      }
    }
  }
  return tiles;
}

AttentionOperands operands_of(std::int64_t bias_heads = 0) {
  AttentionOperands operands{.q = at::empty({64, 4, 32}, at::kBFloat16),
                             .k = at::empty({64, 2, 32}, at::kBFloat16),
                             .v = at::empty({64, 2, 16}, at::kBFloat16),
                             .bias = {},
                             .scale = 0.5};
  if (bias_heads > 0) operands.bias = at::empty({1, bias_heads, 64, 64}, at::kBFloat16);
  return operands;
}

bool cudnn_shows(const CudnnMask& mask, const Tile& tile, std::int64_t i, std::int64_t j) {
  const std::int64_t diagonal = i + (mask.bottom_right ? tile.n - tile.m : 0);
  return (!mask.right_bound || j <= diagonal + *mask.right_bound) &&
         (!mask.left_bound || j > diagonal - *mask.left_bound);
}

// False for graphs that cuDNN is known to refuse.
bool acceptable(const CudnnGraph& graph, const Tile& tile) {
  const CudnnMask& mask = graph.mask;
  if (mask.left_bound && *mask.left_bound <= 0) return false;
  if (mask.right_bound && *mask.right_bound < 0) return false;
  if (mask.bottom_right && graph.bias_heads > 0) return false;
  if (graph.ragged && !mask.padding) return false;
  return mask.padding || tile.m <= tile.n || (!mask.left_bound && !mask.bottom_right);
}

TEST(CudnnBatch, ShowsWhatTheTileShowsWithMasksThatCudnnTakes) {
  for (const Tile& tile : all_small_tiles()) {
    for (const std::int64_t bias_heads : {0, 4}) {
      if (bias_heads > 0 && tile.m == 1) continue;
      const CudnnBatch batch({tile}, operands_of(bias_heads));
      for (const CudnnGraph& graph : batch.forward_graphs()) {
        ASSERT_TRUE(acceptable(graph, tile)) << tile.m << " x " << tile.n << " " << tile.left << " " << tile.right;
        for (std::int64_t i = 0; i < tile.m; ++i) {
          for (std::int64_t j = 0; j < tile.n; ++j) {
            ASSERT_EQ(cudnn_shows(graph.mask, tile, i, j), tile_shows(tile, i, j))
                << tile.m << " x " << tile.n << " " << tile.left << " " << tile.right << " at " << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST(CudnnBatch, ReadsEqualTilesWhereTheyLie) {
  const Tile first{.q_row = 3, .k_row = 5, .m = 4, .n = 6};
  const Tile second{.q_row = 13, .k_row = 25, .m = 4, .n = 6};
  const CudnnBatch batch({first, second}, operands_of());
  const CudnnGraph graph = batch.backward_graphs(true, false).front();
  EXPECT_FALSE(graph.ragged);
  EXPECT_TRUE(graph.deterministic);
  EXPECT_EQ(graph.batch, 2);
  EXPECT_EQ(graph.q_stride, 10 * 4 * 32);
  EXPECT_EQ(graph.k_stride, 20 * 2 * 32);
  EXPECT_EQ(graph.v_stride, 20 * 2 * 16);
  EXPECT_EQ(graph.out_stride, 10 * 4 * 16);
}

TEST(CudnnBatch, MakesOneGraphForRaggedTilesOfSimilarSizes) {
  const auto graph_of = [](std::int64_t m) {
    const Tile first{.q_row = 0, .k_row = 0, .m = m, .n = 6};
    const Tile second{.q_row = 32, .k_row = 25, .m = 4, .n = 6};
    return CudnnBatch({first, second}, operands_of()).backward_graphs(false, false).front();
  };
  EXPECT_TRUE(graph_of(5).ragged);
  EXPECT_EQ(graph_of(5), graph_of(17));
  EXPECT_GE(graph_of(5).q_rows, 9);
}

TEST(CudnnBatch, TakesSingleRowsAsRagged) {
  EXPECT_TRUE(CudnnBatch({{.m = 1, .n = 7}}, operands_of()).ragged());
}

TEST(CudnnParts, OfCausalTilesAreAFullRectangleAndASquare) {
  const TileGroup group{.left = kInfiniteWindow,
                        .right = 0,
                        .tiles = {{.q_row = 2, .k_row = 1, .m = 3, .n = 8, .right = 0, .k_position = 10},
                                  {.q_row = 6, .k_row = 9, .m = 4, .n = 4, .right = 0}}};
  const std::vector<TileGroup> parts = cudnn_parts(group, /*bias=*/true);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_THAT(parts[0].tiles, testing::ElementsAre(Tile{.q_row = 2, .k_row = 1, .m = 3, .n = 5, .k_position = 10}));
  EXPECT_THAT(parts[1].tiles,
              testing::ElementsAre(Tile{.q_row = 2, .k_row = 6, .m = 3, .n = 3, .right = 0, .k_position = 15},
                                   Tile{.q_row = 6, .k_row = 9, .m = 4, .n = 4, .right = 0}));
  EXPECT_EQ(parts[1].right, 0);
  std::vector<Tile> tiles = parts[0].tiles;
  tiles.insert(tiles.end(), parts[1].tiles.begin(), parts[1].tiles.end());
  EXPECT_EQ(pairs_of(tiles), pairs_of(group.tiles));
}

TEST(CudnnParts, LeaveOthersWhole) {
  const TileGroup small{.left = -1, .right = 0, .tiles = {{.m = 3, .n = 8, .right = 0}}};
  EXPECT_EQ(cudnn_parts(small, /*bias=*/false).size(), 1U);
  const TileGroup band{.left = 2, .right = 0, .tiles = {{.m = 3, .n = 4, .left = 2, .right = 0}}};
  EXPECT_EQ(cudnn_parts(band, /*bias=*/true).size(), 1U);
}

}  // namespace
}  // namespace cp_pool
