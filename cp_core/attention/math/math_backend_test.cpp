#include "cp_core/attention/math/math_backend.h"

#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "cp_core/attention/tile_scores.h"
#include "cp_core/testing/tile_group_cases.h"

namespace cp_pool {
namespace {

using test::Figure;
using test::GroupCase;
using test::GroupExpected;
using test::GroupInputs;

constexpr double kTolerance = 64.0 / (1 << 24);

const test::TileShape kShape{.name = "mla_gqa", .heads = 4, .kv_heads = 2, .head_dim_qk = 24, .head_dim_v = 16};

bool near(const at::Tensor& actual, const Figure& expected) {
  const at::Tensor error = actual.to(at::kDouble).sub(expected.value).abs();
  return error.le(expected.magnitude.mul(kTolerance).add(kTolerance)).all().item<bool>();
}

class MathBackendOnGroups : public testing::TestWithParam<GroupCase> {
 protected:
  at::NoGradGuard no_grad_;
};

TEST_P(MathBackendOnGroups, GivesTheAnswersOfFp64) {
  const GroupCase& c = GetParam();
  const GroupInputs inputs = test::make_group_inputs(c, kShape, at::kFloat, {});
  const GroupExpected expected = test::expect_group(c, inputs);
  const auto zeros = [](const Figure& like) { return at::zeros(like.value.sizes(), at::kFloat); };
  AttentionPartial partial{.out = zeros(expected.out),
                           .lse = zeros(expected.lse),
                           .max_logit = at::full({4}, -std::numeric_limits<double>::infinity(), at::kFloat)};
  MathBackend().forward(c.group, inputs.operands, partial);
  EXPECT_TRUE(near(partial.out, expected.out));
  EXPECT_TRUE(
      near(partial.lse.where(test::covered_queries(c), 0),
           {.value = expected.lse.value.where(test::covered_queries(c), 0), .magnitude = expected.lse.magnitude}));
  EXPECT_TRUE(near(partial.max_logit, expected.max_logit));
  const PackedGradients sums{.dq = zeros(expected.dq), .dk = zeros(expected.dk), .dv = zeros(expected.dv), .dbias = {}};
  PendingSums ready{.sums = sums};
  MathBackend().backward(c.group, inputs.operands, inputs.backward, ready);
  EXPECT_TRUE(near(sums.dq, expected.dq));
  EXPECT_TRUE(near(sums.dk, expected.dk));
  EXPECT_TRUE(near(sums.dv, expected.dv));
}

// 40000 bytes of scores make blocks of one kv head and a few rows.
TEST_P(MathBackendOnGroups, HasTheSameScoresInBlocks) {
  const GroupCase& c = GetParam();
  const at::Tensor bias = at::randn({static_cast<std::int64_t>(c.group.tiles.size()), 4, 320, 320}, at::kFloat);
  const AttentionOperands operands = test::make_group_inputs(c, kShape, at::kFloat, bias).operands;
  for (const Tile& tile : c.group.tiles) {
    const TileBlock whole = whole_tile(tile, operands);
    BlockScores expected(tile, whole, operands);
    const at::Tensor by_head = expected.by_head(expected.scores());
    std::int64_t rows = 0;
    for (const TileBlock& block : tile_blocks(tile, operands, 40000)) {
      BlockScores scores(tile, block, operands);
      const at::Tensor part = by_head.narrow(0, block.kv_head * 2, block.kv_heads * 2).narrow(1, block.row, block.rows);
      ASSERT_TRUE(scores.by_head(scores.scores()).allclose(part, 1e-5, 1e-5)) << block.kv_head << ", " << block.row;
      rows += block.kv_heads * block.rows;
    }
    ASSERT_EQ(rows, 2 * tile.m);
  }
}

TEST_P(MathBackendOnGroups, HasTheLargestScoreOfAllTiles) {
  const GroupCase& c = GetParam();
  const GroupInputs inputs = test::make_group_inputs(c, kShape, at::kFloat, {});
  at::Tensor max_logit = at::full({4}, -std::numeric_limits<double>::infinity(), at::kFloat);
  raise_max_logit(c.group, inputs.operands, max_logit);
  EXPECT_TRUE(near(max_logit, test::expect_group(c, inputs).max_logit));
}

INSTANTIATE_TEST_SUITE_P(All, MathBackendOnGroups, testing::ValuesIn(test::group_cases()),
                         [](const auto& info) { return info.param.name; });

// Scores reach some hundreds, whose exponentials overflow fp32.
TEST(MathBackend, SubtractsTheLargestScoreBeforeItsExponential) {
  const GroupCase c = test::group_case("causal_square");
  GroupInputs inputs = test::make_group_inputs(c, kShape, at::kFloat, {});
  inputs.operands.scale *= 200;
  const GroupExpected expected = test::expect_group(c, inputs);
  AttentionPartial partial{.out = at::zeros(expected.out.value.sizes(), at::kFloat),
                           .lse = at::zeros(expected.lse.value.sizes(), at::kFloat),
                           .max_logit = {}};
  MathBackend().forward(c.group, inputs.operands, partial);
  const auto near_to = [](const at::Tensor& actual, const at::Tensor& value) {
    return actual.to(at::kDouble).allclose(value, 1e-2, 1e-2);
  };
  EXPECT_GT(expected.lse.value.max().item<double>(), 100);
  EXPECT_TRUE(near_to(partial.out, expected.out.value));
  const at::Tensor covered = test::covered_queries(c);
  EXPECT_TRUE(near_to(partial.lse.where(covered, 0), expected.lse.value.where(covered, 0)));
}

TEST(ScoreMax, IsNeverLowered) {
  const GroupCase c = test::group_case("causal_square");
  const AttentionOperands operands = test::make_group_inputs(c, kShape, at::kFloat, {}).operands;
  at::Tensor max_logit = at::full({4}, 100.0, at::kFloat);
  raise_max_logit(c.group, operands, max_logit);
  EXPECT_TRUE(max_logit.eq(100.0).all().item<bool>());
}

}  // namespace
}  // namespace cp_pool
