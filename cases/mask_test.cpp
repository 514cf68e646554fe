#include "cases/mask.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cases/dual_chunk.h"

namespace cp_pool {
namespace {

// The definition of the mask, written for one pair of query and key.
bool sees(const Case& c, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv) {
  const std::int64_t diagonal = i + (skv - sq);
  const auto chunk_of = [&](std::int64_t x) {
    std::int64_t chunk = 0;
    while (x < chunk * c.chunk) --chunk;
    while (x >= (chunk + 1) * c.chunk) ++chunk;
    return chunk;
  };
  if (c.window[0] >= 0 && j - diagonal < -c.window[0]) return false;
  if (c.window[1] >= 0 && j - diagonal > c.window[1]) return false;
  if (c.causal && j > diagonal) return false;
  return c.chunk == 0 || chunk_of(diagonal) == chunk_of(j);
}

TEST(Mask, CountsTheDiagonalFromTheBottomRight) {
  EXPECT_TRUE(visible({.right = 0}, 0, 3, 2, 5));
  EXPECT_FALSE(visible({.right = 0}, 0, 4, 2, 5));
  EXPECT_TRUE(visible({.right = 0}, 1, 4, 2, 5));
  EXPECT_FALSE(visible({.right = 0}, 2, 0, 5, 2));  // the query is before the first key and sees nothing
  EXPECT_TRUE(visible({.right = 0}, 3, 0, 5, 2));
}

TEST(Mask, HidesLaterKeysIfCausalWhateverTheWindow) {
  Case c;
  c.window = {3, 5};
  EXPECT_EQ(make_mask(c).right, 5);
  c.causal = true;
  EXPECT_EQ(make_mask(c).right, 0);
  EXPECT_EQ(make_mask(c).left, 3);
}

TEST(Mask, CutsChunksOfTheKeysPositions) {
  const Mask chunked{.chunk = 8};
  EXPECT_TRUE(visible(chunked, 9, 8, 20, 20));
  EXPECT_FALSE(visible(chunked, 9, 7, 20, 20));
  EXPECT_FALSE(visible(chunked, 0, 0, 5, 4));  // diagonal -1 belongs to the chunk before the first
}

TEST(VisibleKeys, AreExactlyThoseOfTheDefinition) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t left : {-1, 0, 3}) {
      for (const std::int64_t right : {-1, 0, 2}) {
        for (const std::int64_t chunk : {0, 1, 4, 50}) {
          for (const auto& [sq, skv] : std::vector<std::pair<std::int64_t, std::int64_t>>{{9, 9}, {5, 11}, {11, 5}}) {
            Case c;
            c.causal = causal;
            c.window = {left, right};
            c.chunk = chunk;
            for (std::int64_t i = 0; i < sq; ++i) {
              for (std::int64_t j = 0; j < skv; ++j) {
                EXPECT_EQ(visible(make_mask(c), i, j, sq, skv), sees(c, i, j, sq, skv))
                    << causal << " " << left << "," << right << " chunk " << chunk << " sq " << sq << " i " << i
                    << " j " << j;
              }
            }
          }
        }
      }
    }
  }
}

TEST(VisibleKeys, APaddingQuerySeesNothing) {
  EXPECT_TRUE(visible_keys(Mask{}, 9, 9, 9).empty());
}

// One row for each query, one column for each key.
std::vector<std::string> drawn(const Mask& mask, std::int64_t sq, std::int64_t skv) {
  std::vector<std::string> rows;
  for (std::int64_t i = 0; i < sq; ++i) {
    std::string& row = rows.emplace_back();
    for (std::int64_t j = 0; j < skv; ++j) row += visible(mask, i, j, sq, skv) ? '#' : '.';
  }
  return rows;
}

std::vector<std::string> drawn(SliceType type, std::int64_t sq, std::int64_t skv) {
  return drawn({.slices = {{.queries = {0, sq}, .keys = {0, skv}, .type = type}}}, sq, skv);
}

TEST(Slices, EndAndBeginTheirDiagonalsInCorners) {
  using Rows = std::vector<std::string>;
  EXPECT_EQ(drawn(SliceType::full, 2, 3), (Rows{"###", "###"}));
  EXPECT_EQ(drawn(SliceType::causal, 2, 4), (Rows{"###.", "####"}));
  EXPECT_EQ(drawn(SliceType::causal, 4, 2), (Rows{"..", "..", "#.", "##"}));
  EXPECT_EQ(drawn(SliceType::inverse_causal, 2, 4), (Rows{"####", ".###"}));
  EXPECT_EQ(drawn(SliceType::inverse_causal, 4, 2), (Rows{"##", ".#", "..", ".."}));
  EXPECT_EQ(drawn(SliceType::bicausal, 2, 4), (Rows{"###.", ".###"}));
  EXPECT_EQ(drawn(SliceType::bicausal, 4, 2), (Rows{"..", "..", "..", ".."}));
}

TEST(Slices, AreAtPositionsOfASequence) {
  const Mask documents{.slices = {{.queries = {0, 2}, .keys = {0, 2}, .type = SliceType::causal},
                                  {.queries = {2, 5}, .keys = {2, 5}, .type = SliceType::causal},
                                  {.queries = {2, 5}, .keys = {0, 1}}}};
  EXPECT_EQ(drawn(documents, 5, 5), (std::vector<std::string>{"#....", "##...", "#.#..", "#.##.", "#.###"}));
  EXPECT_EQ(drawn(documents, 3, 4), (std::vector<std::string>{"#...", "##..", "#.#."})) << "a shorter sequence";
  const std::vector<Interval> seen = visible_keys(documents, 3, 5, 5);
  EXPECT_EQ(seen, (std::vector<Interval>{{2, 4}, {0, 1}}));
  EXPECT_EQ(count_visible(documents, 3, {.begin = 0, .end = 3}, 5, 5), 2);
}

TEST(DualChunk, OfEachRankAreOneFromTheFrontAndItsMirror) {
  EXPECT_EQ(dual_chunk(4, 1, 0), 1);
  EXPECT_EQ(dual_chunk(4, 1, 1), 6);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (const int half : {0, 1}) EXPECT_EQ(owner_of_chunk(ranks, dual_chunk(ranks, rank, half)), rank);
    }
  }
}

}  // namespace
}  // namespace cp_pool
