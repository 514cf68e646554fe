#include "cp_core/attention/attend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
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

}  // namespace
}  // namespace cp_pool
