#include "cp_core/verify/rows.h"

#include <set>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> positions(const RankRows& rows) {
  std::vector<std::int64_t> result;
  for (const LocalRow& row : rows.rows()) result.push_back(row.position);
  return result;
}

at::Tensor numbered(std::int64_t tokens) {
  return at::arange(tokens, at::kFloat).view({tokens, 1, 1});
}

TEST(RankRows, AreTheFirstAndTheLastChunkOfTheOuterRank) {
  EXPECT_THAT(positions(RankRows(Layout::thd, 0, 2, {8}, {8})), ElementsAre(0, 1, 6, 7));
}

TEST(RankRows, AreTheMiddleChunksOfTheInnerRank) {
  EXPECT_THAT(positions(RankRows(Layout::thd, 1, 2, {8}, {8})), ElementsAre(2, 3, 4, 5));
}

TEST(RankRows, OfAllRanksCoverEveryPositionOnce) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (int rank = 0; rank < 4; ++rank) {
    const RankRows rows(Layout::thd, rank, 4, {5, 0, 16}, {8, 0, 16});
    for (const LocalRow& row : rows.rows()) {
      EXPECT_TRUE(seen.emplace(row.sequence, row.position).second);
    }
  }
  EXPECT_EQ(seen.size(), 24U);
}

TEST(RankRows, CountCanonicalRowsByValidLengths) {
  const RankRows rows(Layout::thd, 0, 1, {3, 2}, {4, 4});
  EXPECT_TRUE(at::equal(rows.canonical_rows(), at::arange(5)));
  EXPECT_EQ(rows.rows()[3].canonical, -1);
  EXPECT_EQ(rows.rows()[4].canonical, 3);
}

TEST(RankRows, ShardHasNaNAtPadding) {
  const at::Tensor shard = RankRows(Layout::thd, 0, 1, {3}, {4}).shard(numbered(3));
  EXPECT_TRUE(at::equal(shard.narrow(0, 0, 3), numbered(3)));
  EXPECT_TRUE(shard[3].isnan().item<bool>());
}

TEST(RankRows, ShardOfBshdKeepsTheBatchFirstAndOfSbhdTheSequence) {
  const at::Tensor canonical = numbered(16);  // two sequences of 8; rank 1 of 2 holds positions 2..5
  const at::Tensor bshd = RankRows(Layout::bshd, 1, 2, {8, 8}, {8, 8}).shard(canonical);
  EXPECT_EQ(bshd.sizes(), (std::vector<std::int64_t>{2, 4, 1, 1}));
  EXPECT_EQ(bshd[1][0].item<float>(), 10.0F);
  const at::Tensor sbhd = RankRows(Layout::sbhd, 1, 2, {8, 8}, {8, 8}).shard(canonical);
  EXPECT_EQ(sbhd.sizes(), (std::vector<std::int64_t>{4, 2, 1, 1}));
  EXPECT_EQ(sbhd[0][1].item<float>(), 10.0F);
}

TEST(RankRows, PackedUndoesShardInEveryLayout) {
  for (const auto layout : {Layout::bshd, Layout::sbhd, Layout::thd}) {
    const RankRows rows(layout, 1, 2, {8, 8}, {8, 8});
    const at::Tensor canonical = numbered(16);
    EXPECT_TRUE(at::equal(rows.packed(rows.shard(canonical)), canonical.index_select(0, rows.canonical_rows())));
  }
}

TEST(RankRows, RefuseAShapeThatIsNoShard) {
  EXPECT_THROW((void)RankRows(Layout::thd, 0, 2, {8}, {8}).packed(at::zeros({5, 1, 1})), ShapeError);
  EXPECT_THROW((void)RankRows(Layout::bshd, 0, 2, {8, 8}, {8, 8}).packed(at::zeros({8, 1, 1})), ShapeError);
  EXPECT_THROW((void)RankRows(Layout::sbhd, 0, 2, {8, 8}, {8, 8}).packed(at::zeros({2, 4, 1, 1})), ShapeError);
}

}  // namespace
}  // namespace cp_pool::verify
