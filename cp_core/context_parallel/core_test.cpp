#include "cp_core/context_parallel/core.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace cp_pool::test {
namespace {

constexpr HeadGroup kSecond{.index = 1, .count = 2};

at::Tensor numbers(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes);
}

TEST(HeadGroup, NarrowsTheHeadsOfEveryOperand) {
  const AttentionOperands all{
      .q = numbers({3, 4, 2}), .k = numbers({5, 2, 2}), .v = numbers({5, 2, 1}), .bias = {}, .scale = 0.5};
  const AttentionOperands second = narrowed(all, kSecond);
  EXPECT_TRUE(at::equal(second.q, all.q.slice(1, 2, 4)));
  EXPECT_TRUE(at::equal(second.k, all.k.slice(1, 1, 2)));
  EXPECT_TRUE(at::equal(second.v, all.v.slice(1, 1, 2)));
  EXPECT_EQ(second.scale, 0.5);
}

// delta is undefined for backends that compute it themselves, and out may be undefined for others.
TEST(HeadGroup, LeavesOutWhatABackendDoesNotRead) {
  const AttentionBackwardOperands with_out{
      .dout = numbers({3, 4, 2}), .lse = numbers({4, 3}), .delta = {}, .out = numbers({3, 4, 2}).neg()};
  const AttentionBackwardOperands second = narrowed(with_out, kSecond);
  EXPECT_TRUE(at::equal(second.dout, with_out.dout.slice(1, 2, 4)));
  EXPECT_TRUE(at::equal(second.lse, with_out.lse.slice(0, 2, 4)));
  EXPECT_TRUE(at::equal(second.out, with_out.out.slice(1, 2, 4)));
  EXPECT_FALSE(second.delta.defined());

  const AttentionBackwardOperands with_delta{
      .dout = with_out.dout, .lse = with_out.lse, .delta = numbers({4, 3}), .out = {}};
  EXPECT_TRUE(at::equal(narrowed(with_delta, kSecond).delta, with_delta.delta.slice(0, 2, 4)));
  EXPECT_FALSE(narrowed(with_delta, kSecond).out.defined());
}

}  // namespace
}  // namespace cp_pool::test
