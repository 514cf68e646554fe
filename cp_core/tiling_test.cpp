#include "cp_core/tiling.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kInf = kInfiniteWindow;

struct Problem {
  std::vector<std::int64_t> padded_q;
  std::vector<std::int64_t> padded_kv;
  std::vector<std::int64_t> valid_q;
  std::vector<std::int64_t> valid_kv;
  std::vector<Run> q_runs;
  std::vector<Run> k_runs;
  Mask mask;
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t up_to(std::int64_t largest) { return std::uniform_int_distribution<std::int64_t>(0, largest)(engine_); }
  bool one_in(std::int64_t n) { return up_to(n - 1) == 0; }
  std::int64_t window(std::int64_t largest) { return one_in(3) ? kInf : up_to(largest); }

 private:
  std::mt19937_64 engine_;
};

std::vector<std::int64_t> valid_of(Random& random, const std::vector<std::int64_t>& padded) {
  std::vector<std::int64_t> valid;
  valid.reserve(padded.size());
  for (const std::int64_t length : padded) valid.push_back(random.one_in(2) ? length : random.up_to(length));
  return valid;
}

std::vector<Run> some_runs(Random& random, const std::vector<std::int64_t>& padded, int ranks) {
  const auto any = static_cast<int>(random.up_to(ranks - 1));
  if (random.one_in(4)) return whole_runs(padded);
  if (random.one_in(3)) return local_half_runs(padded, ranks, any, static_cast<int>(random.up_to(1)));
  return local_runs(padded, ranks, any);
}

// A grid of slices that cover a sequence of 24 queries and keys.
std::vector<MaskSlice> some_slices(Random& random) {
  constexpr std::int64_t kLength = 24;
  std::vector<MaskSlice> slices;
  const std::int64_t q = random.up_to(kLength);
  const std::int64_t k = random.up_to(kLength);
  for (const Interval& queries : {Interval{0, q}, Interval{q, kLength}}) {
    for (const Interval& keys : {Interval{0, k}, Interval{k, kLength}}) {
      if (queries.size() == 0 || keys.size() == 0) continue;
      slices.push_back({.queries = queries, .keys = keys, .type = static_cast<SliceType>(random.up_to(3))});
    }
  }
  return slices;
}

Problem random_problem(Random& random) {
  Problem problem;
  const int ranks = 1 << random.up_to(2);
  const std::int64_t pieces = 2 * static_cast<std::int64_t>(ranks);
  const auto lengths = [&] {
    std::vector<std::int64_t> padded;
    for (std::int64_t b = 0; b <= random.up_to(2); ++b) padded.push_back(pieces * random.up_to(24 / ranks));
    return padded;
  };
  problem.padded_q = lengths();
  problem.padded_kv = problem.padded_q;
  if (random.one_in(2)) {
    for (std::int64_t& length : problem.padded_kv) length = pieces * random.up_to(24 / ranks);
  }
  problem.valid_q = valid_of(random, problem.padded_q);
  problem.valid_kv =
      problem.padded_q == problem.padded_kv && random.one_in(2) ? problem.valid_q : valid_of(random, problem.padded_kv);
  problem.q_runs = some_runs(random, problem.padded_q, ranks);
  problem.k_runs = some_runs(random, problem.padded_kv, ranks);
  problem.mask.left = random.window(40);
  problem.mask.right = random.one_in(3) ? 0 : random.window(40);
  if (random.one_in(3)) problem.mask.chunk = 1 + random.up_to(30);
  if (random.one_in(3)) problem.mask = {.slices = some_slices(random)};
  return problem;
}

// How many tiles show each (query row, key row) pair; -1 marks a tile that reaches outside the tensors.
using Count = std::vector<std::vector<int>>;

Count count_pairs(const std::vector<Tile>& tiles, std::int64_t q_rows, std::int64_t k_rows) {
  Count count(static_cast<std::size_t>(q_rows), std::vector<int>(static_cast<std::size_t>(k_rows), 0));
  for (const Tile& tile : tiles) {
    for (std::int64_t ii = 0; ii < tile.m; ++ii) {
      for (std::int64_t jj = 0; jj < tile.n; ++jj) {
        const std::int64_t offset = jj - (ii + tile.n - tile.m);
        if (tile.left != kInf && offset < -tile.left) continue;
        if (tile.right != kInf && offset > tile.right) continue;
        ++count.at(static_cast<std::size_t>(tile.q_row + ii)).at(static_cast<std::size_t>(tile.k_row + jj));
      }
    }
  }
  return count;
}

Count expected_pairs(const Problem& problem) {
  Count count(static_cast<std::size_t>(total_rows(problem.q_runs)),
              std::vector<int>(static_cast<std::size_t>(total_rows(problem.k_runs)), 0));
  for (const Run& q : problem.q_runs) {
    for (const Run& k : problem.k_runs) {
      if (q.sequence != k.sequence) continue;
      const std::int64_t sq = problem.valid_q[static_cast<std::size_t>(q.sequence)];
      const std::int64_t skv = problem.valid_kv[static_cast<std::size_t>(q.sequence)];
      for (std::int64_t i = q.begin; i < std::min(q.end, sq); ++i) {
        for (std::int64_t j = k.begin; j < std::min(k.end, skv); ++j) {
          if (!visible(problem.mask, i, j, sq, skv)) continue;
          ++count[static_cast<std::size_t>(q.row + i - q.begin)][static_cast<std::size_t>(k.row + j - k.begin)];
        }
      }
    }
  }
  return count;
}

std::vector<Tile> all_tiles(const Problem& problem) {
  return make_tiles(problem.q_runs, problem.k_runs, {.q = problem.valid_q, .kv = problem.valid_kv}, problem.mask);
}

std::vector<Tile> all_tiles(const TilePlan& plan) {
  std::vector<Tile> tiles;
  for (const TileGroup& group : plan) {
    for (Tile tile : group.tiles) {
      tile.left = group.left;
      tile.right = group.right;
      tiles.push_back(tile);
    }
  }
  return tiles;
}

bool wellformed(const Tile& tile) {
  const bool window = tile.left >= kInf && tile.right >= kInf;
  const bool normal = (tile.left == kInf || tile.left < tile.n - 1) && (tile.right == kInf || tile.right < tile.m - 1);
  return tile.m > 0 && tile.n > 0 && window && normal;
}

// Whether every row has a key and every key has a row, so that nothing is left to trim.
bool is_trimmed(const Tile& tile) {
  Tile at_origin = tile;
  at_origin.q_row = 0;
  at_origin.k_row = 0;
  const Count count = count_pairs({at_origin}, tile.m, tile.n);
  for (const auto& row : count) {
    if (std::ranges::find(row, 1) == row.end()) return false;
  }
  for (std::size_t j = 0; j < static_cast<std::size_t>(tile.n); ++j) {
    if (std::ranges::none_of(count, [j](const auto& row) { return row[j] == 1; })) return false;
  }
  return true;
}

std::string describe(const Problem& problem) {
  return fmt::format("padded q {} kv {}, valid q {} kv {}, window {},{} chunk {}",
                     testing::PrintToString(problem.padded_q), testing::PrintToString(problem.padded_kv),
                     testing::PrintToString(problem.valid_q), testing::PrintToString(problem.valid_kv),
                     problem.mask.left, problem.mask.right, problem.mask.chunk);
}

TEST(Tiling, ShowsEveryVisiblePairInExactlyOneTileWhetherMergedAndGroupedOrNot) {
  Random random(20);
  for (int i = 0; i < 30000; ++i) {
    const Problem problem = random_problem(random);
    const std::int64_t q_rows = total_rows(problem.q_runs);
    const std::int64_t k_rows = total_rows(problem.k_runs);
    const Count expected = expected_pairs(problem);
    const std::vector<Tile> tiles = all_tiles(problem);
    ASSERT_EQ(count_pairs(tiles, q_rows, k_rows), expected) << i << ": " << describe(problem);
    ASSERT_TRUE(std::ranges::all_of(tiles, wellformed)) << i << ": " << describe(problem);
    ASSERT_TRUE(std::ranges::all_of(tiles, is_trimmed)) << i << ": " << describe(problem);
    const std::vector<Tile> merged = merge_tiles(tiles);
    ASSERT_EQ(count_pairs(merged, q_rows, k_rows), expected) << i << " merged: " << describe(problem);
    ASSERT_TRUE(std::ranges::all_of(merged, wellformed)) << i << " merged: " << describe(problem);
    const TilePlan plan = group_tiles(merged);
    ASSERT_EQ(count_pairs(all_tiles(plan), q_rows, k_rows), expected) << i << " grouped: " << describe(problem);
  }
}

TEST(Tiling, KeepsTheQueryRowsOfAGroupApartAndInOrder) {
  Random random(21);
  for (int i = 0; i < 3000; ++i) {
    const Problem problem = random_problem(random);
    for (const TileGroup& group : group_tiles(all_tiles(problem))) {
      std::int64_t end = 0;
      for (const Tile& tile : group.tiles) {
        ASSERT_GE(tile.q_row, end) << describe(problem);
        end = tile.q_row + tile.m;
      }
    }
  }
}

std::vector<Tile> merged_ring_step(int rank, int owner, const Mask& mask) {
  const std::vector<std::int64_t> lengths{64};
  return merge_tiles(
      make_tiles(local_runs(lengths, 4, rank), local_runs(lengths, 4, owner), {.q = lengths, .kv = lengths}, mask));
}

TEST(Tiling, MakesOneTileOfEachCausalRingStep) {
  const Mask causal{.right = 0};
  EXPECT_THAT(merged_ring_step(1, 1, causal),
              ElementsAre(testing::AllOf(testing::Field(&Tile::m, 16), testing::Field(&Tile::n, 16),
                                         testing::Field(&Tile::right, 0))));
  EXPECT_THAT(merged_ring_step(2, 1, causal),
              ElementsAre(testing::AllOf(testing::Field(&Tile::m, 16), testing::Field(&Tile::n, 8),
                                         testing::ResultOf([](const Tile& t) { return t.full(); }, true))));
  EXPECT_THAT(merged_ring_step(1, 2, causal),
              ElementsAre(testing::AllOf(testing::Field(&Tile::m, 8), testing::Field(&Tile::n, 16),
                                         testing::ResultOf([](const Tile& t) { return t.full(); }, true))));
}

TEST(Tiling, HasNoTileWhereNothingIsSeen) {
  const std::vector<std::int64_t> lengths{64};
  const auto first = std::vector{cp_pool::Run{.sequence = 0, .begin = 0, .end = 8, .row = 0}};
  const auto last = std::vector{cp_pool::Run{.sequence = 0, .begin = 56, .end = 64, .row = 0}};
  EXPECT_THAT(make_tiles(first, last, {.q = lengths, .kv = lengths}, {.right = 0}), IsEmpty());
  EXPECT_THAT(make_tiles(last, first, {.q = lengths, .kv = lengths}, {.left = 16, .right = 0}), IsEmpty());
  const std::vector<std::int64_t> empty{0};
  EXPECT_THAT(make_tiles(first, first, {.q = lengths, .kv = empty}, {}), IsEmpty());
}

}  // namespace
}  // namespace cp_pool
