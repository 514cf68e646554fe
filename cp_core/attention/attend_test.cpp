#include "cp_core/attention/attend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "cp_core/attention/math/math_backend.h"

namespace cp_pool {
namespace {

constexpr std::int64_t kRows = 8;

AttentionOperands bf16_operands() {
  const auto make = [] { return at::randn({kRows, 2, 4}).to(at::kBFloat16); };
  return {.q = make(), .k = make(), .v = make(), .bias = {}, .scale = 0.5};
}

TileGroup all_queries_with_keys(std::int64_t first, std::int64_t count) {
  return {.tiles = {{.q_row = 0, .k_row = first, .m = kRows, .n = count}}};
}

class Attend : public testing::Test {
 protected:
  at::ScalarType after(const TilePlan& plan, Then then) {
    attend(backend_, plan, operands_, sums_, then);
    return sums_.out.scalar_type();
  }

  at::NoGradGuard no_grad_;
  MathBackend backend_{MathBackend::Results::calls};
  AttentionOperands operands_ = bf16_operands();
  AttentionSums sums_ = make_empty_sums(operands_, false);
};

TEST_F(Attend, LeavesTheOnlyPartAsItsCallRoundedIt) {
  EXPECT_EQ(after({all_queries_with_keys(0, kRows)}, Then::more), at::kBFloat16);
}

TEST_F(Attend, RoundsTwoPartsAtOnceIfNoneFollows) {
  (void)after({all_queries_with_keys(0, 4)}, Then::more);
  EXPECT_EQ(after({all_queries_with_keys(4, 4)}, Then::nothing), at::kBFloat16);
}

TEST_F(Attend, MergesInFp32IfMoreFollows) {
  (void)after({all_queries_with_keys(0, 4)}, Then::more);
  EXPECT_EQ(after({all_queries_with_keys(4, 2)}, Then::more), at::kFloat);
}

TEST_F(Attend, MergesInFp32WhatOneStepGivesInSeveralParts) {
  EXPECT_EQ(
      after({all_queries_with_keys(0, 4), all_queries_with_keys(4, 2), all_queries_with_keys(6, 2)}, Then::nothing),
      at::kFloat);
}

PackedGradients sums_filled_with(double value, const AttentionOperands& operands) {
  PackedGradients sums = make_gradient_sums(operands);
  for (const at::Tensor& sum : {sums.dq, sums.dk, sums.dv}) sum.fill_(value);
  return sums;
}

TEST(AttendBackward, WaitsForTheTurnBeforeItWritesToTheSums) {
  const at::NoGradGuard no_grad;
  const AttentionOperands operands = bf16_operands();
  const at::Tensor statistic = at::zeros({2, kRows});
  const AttentionBackwardOperands backward{
      .dout = at::randn_like(operands.v), .lse = statistic, .delta = statistic, .out = {}};
  MathBackend backend;
  const PackedGradients from_zeros = sums_filled_with(0.0, operands);
  attend_backward(backend, {all_queries_with_keys(0, 4)}, operands, backward, {.sums = from_zeros});
  const PackedGradients from_empty = sums_filled_with(1e30, operands);
  int turns = 0;
  const auto turn = [&] {
    ++turns;
    for (const at::Tensor& sum : {from_empty.dq, from_empty.dk, from_empty.dv})
      EXPECT_TRUE(sum.eq(1e30).all().item<bool>());
  };
  attend_backward(backend, {all_queries_with_keys(0, 4)}, operands, backward,
                  {.sums = from_empty, .dq_empty = true, .dkv_empty = true, .turn = turn});
  EXPECT_EQ(turns, 1);
  EXPECT_TRUE(at::equal(from_empty.dq, from_zeros.dq));
  EXPECT_TRUE(at::equal(from_empty.dk, from_zeros.dk));
  EXPECT_TRUE(at::equal(from_empty.dv, from_zeros.dv));
}

TEST(AttendBackward, FillsEmptySumsOfAPlanWithoutTiles) {
  const AttentionOperands operands = bf16_operands();
  MathBackend backend;
  const PackedGradients sums = sums_filled_with(1e30, operands);
  attend_backward(backend, {}, operands, {}, {.sums = sums, .dq_empty = true, .dkv_empty = true});
  EXPECT_EQ(sums.dq.count_nonzero().item<std::int64_t>(), 0);
  EXPECT_EQ(sums.dk.count_nonzero().item<std::int64_t>(), 0);
  EXPECT_EQ(sums.dv.count_nonzero().item<std::int64_t>(), 0);
}

}  // namespace
}  // namespace cp_pool
