#include "cp_core/attention/tile_batches.h"

#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/attention/flash/flash_window.h"

namespace cp_pool {
namespace {

using testing::ElementsAre;

Tile tile(std::int64_t q_row, std::int64_t k_row, std::int64_t m, std::int64_t n) {
  return {.q_row = q_row, .k_row = k_row, .m = m, .n = n};
}

TEST(TileBatches, KeepTilesWithDisjointAscendingKeysTogether) {
  const std::vector<Tile> tiles{tile(0, 0, 4, 8), tile(4, 8, 4, 8), tile(9, 20, 1, 1)};
  EXPECT_THAT(split_by_keys(tiles), ElementsAre(tiles));
}

TEST(TileBatches, PartTilesThatShareKeys) {
  const Tile a = tile(0, 0, 4, 8);
  const Tile b = tile(4, 7, 4, 8);
  const Tile c = tile(8, 8, 4, 8);
  const Tile d = tile(12, 15, 4, 8);
  EXPECT_THAT(split_by_keys({a, b, c, d}), ElementsAre(ElementsAre(a, c), ElementsAre(b, d)));
}

TEST(TileBatches, PartTilesWhoseKeysDescend) {
  const Tile a = tile(0, 8, 4, 8);
  const Tile b = tile(4, 0, 4, 8);
  EXPECT_THAT(split_by_keys({a, b}), ElementsAre(ElementsAre(a), ElementsAre(b)));
}

TEST(UniformTiles, AreOfOneSizeAtEqualDistances) {
  EXPECT_EQ(uniform_tiles({tile(1, 2, 4, 8), tile(7, 12, 4, 8), tile(13, 22, 4, 8)}),
            (UniformTiles{.batch = 3, .m = 4, .n = 8, .q_row = 1, .k_row = 2, .q_stride = 6, .k_stride = 10}));
  EXPECT_EQ(uniform_tiles({tile(1, 2, 4, 8)}),
            (UniformTiles{.batch = 1, .m = 4, .n = 8, .q_row = 1, .k_row = 2, .q_stride = 4, .k_stride = 8}));
}

TEST(UniformTiles, DifferInNeitherSizeNorDistance) {
  EXPECT_EQ(uniform_tiles({tile(0, 0, 4, 8), tile(4, 8, 3, 8)}), std::nullopt);
  EXPECT_EQ(uniform_tiles({tile(0, 0, 4, 8), tile(4, 8, 4, 9)}), std::nullopt);
  EXPECT_EQ(uniform_tiles({tile(0, 0, 4, 8), tile(4, 8, 4, 8), tile(9, 16, 4, 8)}), std::nullopt);
  EXPECT_EQ(uniform_tiles({tile(0, 0, 4, 8), tile(4, 8, 4, 8), tile(8, 17, 4, 8)}), std::nullopt);
}

TEST(CumulativeLengths, MakeGapsSequencesWithRowsOnOneSide) {
  const TileBatch batch{tile(3, 5, 4, 8), tile(9, 13, 2, 6), tile(11, 20, 1, 1)};
  EXPECT_EQ(query_span(batch), (RowRange{.row = 3, .count = 9}));
  EXPECT_EQ(key_span(batch), (RowRange{.row = 5, .count = 16}));
  EXPECT_EQ(cumulative_lengths(batch), (CumulativeLengths{.q = {0, 4, 6, 8, 8, 9}, .k = {0, 8, 8, 14, 15, 16}}));
  EXPECT_EQ(compact_lengths(batch), (CumulativeLengths{.q = {0, 4, 6, 7}, .k = {0, 8, 14, 15}}));
}

// The (query row, key row) pairs that a kernel with packed lengths would compute for a batch.
using Pairs = std::multiset<std::pair<std::int64_t, std::int64_t>>;

Pairs pairs_of_tiles(const std::vector<Tile>& tiles) {
  Pairs pairs;
  for (const Tile& t : tiles) {
    for (std::int64_t i = 0; i < t.m; ++i) {
      for (std::int64_t j = 0; j < t.n; ++j) pairs.emplace(t.q_row + i, t.k_row + j);
    }
  }
  return pairs;
}

void add_pairs_of_call(const TileBatch& batch, Pairs& pairs) {
  const CumulativeLengths lengths = cumulative_lengths(batch);
  ASSERT_EQ(lengths.q.size(), lengths.k.size());
  ASSERT_EQ(lengths.q.back(), query_span(batch).count);
  ASSERT_EQ(lengths.k.back(), key_span(batch).count);
  for (std::size_t s = 0; s + 1 < lengths.q.size(); ++s) {
    for (std::int64_t i = lengths.q[s]; i < lengths.q[s + 1]; ++i) {
      for (std::int64_t j = lengths.k[s]; j < lengths.k[s + 1]; ++j) {
        pairs.emplace(query_span(batch).row + i, key_span(batch).row + j);
      }
    }
  }
}

TEST(CumulativeLengths, OfAllBatchesComputeEachPairOfTheTilesOnceAndNoOther) {
  std::mt19937 engine(5);
  const auto up_to = [&](int largest) { return std::uniform_int_distribution<std::int64_t>(0, largest)(engine); };
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<Tile> tiles;
    std::int64_t q_row = 0;
    for (std::int64_t i = up_to(7); i >= 0; --i) {
      q_row += up_to(2);
      tiles.push_back(tile(q_row, up_to(30), 1 + up_to(3), 1 + up_to(5)));
      q_row += tiles.back().m;
    }
    Pairs pairs;
    for (const TileBatch& batch : split_by_keys(tiles)) add_pairs_of_call(batch, pairs);
    ASSERT_EQ(pairs, pairs_of_tiles(tiles)) << "trial " << trial;
  }
}

// The key offsets from the bottom-right diagonal that FlashAttention 2 shows for a given max_seqlen_k.
struct Shown {
  std::int64_t left;
  std::int64_t right;
};

Shown flash_shows(FlashWindow window, std::int64_t max_seqlen_k) {
  constexpr std::int64_t kUnlimited = 1 << 20;
  std::int64_t left = window.left >= max_seqlen_k ? -1 : window.left;
  std::int64_t right = window.right >= max_seqlen_k ? -1 : window.right;
  if (left < 0 && right < 0) return {.left = kUnlimited, .right = kUnlimited};
  if (left < 0) left = max_seqlen_k;
  if (right < 0) right = max_seqlen_k;
  return {.left = left, .right = right};
}

bool tile_shows(const FlashWindow& window, std::int64_t offset) {
  return (window.left == kInfiniteWindow || offset >= -window.left) &&
         (window.right == kInfiniteWindow || offset <= window.right);
}

bool same_visibility(const FlashWindow& window, std::int64_t max_seqlen_k, std::int64_t m, std::int64_t n) {
  const Shown shown = flash_shows(window, max_seqlen_k);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t offset = j - (i + n - m);
      if (tile_shows(window, offset) != (offset >= -shown.left && offset <= shown.right)) return false;
    }
  }
  return true;
}

TEST(FlashWindow, ShowsWhatTheTileShowsWhateverTheShape) {
  for (std::int64_t m = 1; m <= 9; ++m) {
    for (std::int64_t n = 1; n <= 9; ++n) {
      for (std::int64_t left = kInfiniteWindow; left <= 9; ++left) {
        for (std::int64_t right = kInfiniteWindow; right <= 9; ++right) {
          const FlashWindow window{.left = left, .right = right};
          ASSERT_TRUE(same_visibility(window, window.max_seqlen_k(m, n), m, n)) << m << n << left << right;
          if (window.fits_fixed_length(m, n)) {
            ASSERT_TRUE(same_visibility(window, n, m, n)) << m << n << left << right;
          }
        }
      }
    }
  }
}

TEST(FlashWindow, NeedsLongerKeysWhereThereAreMoreQueries) {
  EXPECT_FALSE(same_visibility({.left = kInfiniteWindow, .right = 5}, 4, 9, 4));
  EXPECT_FALSE(same_visibility({.left = 2, .right = kInfiniteWindow}, 4, 9, 4));
  EXPECT_TRUE((FlashWindow{.left = kInfiniteWindow, .right = 0}.fits_fixed_length(100, 100)));
}

}  // namespace
}  // namespace cp_pool
