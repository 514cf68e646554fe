#include "cp_core/verify/rank_bias.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "cp_core/verify/inputs.h"

namespace cp_pool::verify {
namespace {

// Sequences of 3 and 5 tokens, padded to 4 and 6.
at::Tensor padded_bias(BiasShape shape, const at::Tensor& canonical) {
  Case c;
  c.cp_size = 1;
  c.layout = Layout::thd;
  c.bias = shape;
  const SequenceLengths lengths{.valid_q = {3, 5}, .padded_q = {4, 6}, .valid_kv = {3, 5}, .padded_kv = {4, 6}};
  const RankRows queries(c.layout, 0, 1, lengths.valid_q, lengths.padded_q);
  return RankBias(c, lengths, queries).shard(canonical);
}

at::Tensor canonical_bias(BiasShape shape) {
  CanonicalProblem problem;
  problem.seqlens_q = problem.seqlens_kv = {3, 5};
  problem.heads = problem.kv_heads = 2;
  problem.head_dim_qk = problem.head_dim_v = 8;
  problem.bias = shape;
  return make_inputs(problem).bias;
}

// Expects that the first `length` rows and columns of a matrix are the bias and all other elements are NaN.
void expect_valid(const at::Tensor& padded, const at::Tensor& canonical, std::int64_t length) {
  const auto first = [length](const at::Tensor& matrix) { return matrix.narrow(0, 0, length).narrow(1, 0, length); };
  EXPECT_TRUE(at::equal(first(padded), first(canonical)));
  EXPECT_EQ(padded.isnan().sum().item<std::int64_t>(), padded.numel() - length * length);
}

TEST(RankBias, HasNaNPastEachSequence) {
  const at::Tensor canonical = canonical_bias(BiasShape::shape_bhss);
  const at::Tensor padded = padded_bias(BiasShape::shape_bhss, canonical);
  ASSERT_EQ(padded.sizes(), at::IntArrayRef({2, 2, 6, 6}));
  for (std::int64_t head = 0; head < 2; ++head) {
    expect_valid(padded[0][head], canonical[0][head], 3);
    expect_valid(padded[1][head], canonical[1][head], 5);
  }
}

TEST(RankBias, OfAllSequencesHasNaNPastTheLongest) {
  const at::Tensor canonical = canonical_bias(BiasShape::shape_11ss);
  const at::Tensor padded = padded_bias(BiasShape::shape_11ss, canonical);
  ASSERT_EQ(padded.sizes(), at::IntArrayRef({1, 1, 6, 6}));
  expect_valid(padded[0][0], canonical[0][0], 5);
}

}  // namespace
}  // namespace cp_pool::verify
