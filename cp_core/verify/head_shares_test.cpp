#include "cp_core/verify/head_shares.h"

#include <vector>

#include <ATen/ops/allclose.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::verify {
namespace {

CanonicalProblem problem_with(std::int64_t heads, std::int64_t kv_heads) {
  CanonicalProblem problem;
  problem.seqlens_q = {70, 0, 33};
  problem.seqlens_kv = {70, 5, 40};
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim_qk = 16;
  problem.head_dim_v = 8;
  problem.causal = true;
  problem.dtype = DType::bf16;
  problem.seed = 5;
  return problem;
}

std::vector<Expected> together(const CanonicalProblem& problem, int ranks) {
  std::vector<Expected> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](const CpGroups& groups, int rank) {
    all[static_cast<std::size_t>(rank)] = compute_expected_together(problem, make_inputs(problem), *groups.cp);
  });
  return all;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.scalar_type() == b.scalar_type() && a.equal(b);
}

void expect_same(const Expected& got, const Expected& wanted) {
  ASSERT_EQ(got.tensors.size(), wanted.tensors.size());
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    const ExpectedTensor& a = got.tensors[i];
    const ExpectedTensor& b = wanted.tensors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_TRUE(same_bits(a.value, b.value)) << "value of " << a.name;
    EXPECT_TRUE(same_bits(a.baseline_error, b.baseline_error)) << "baseline of " << a.name;
    EXPECT_TRUE(same_bits(a.bound, b.bound)) << "bound of " << a.name;
    EXPECT_TRUE(same_bits(a.untouched, b.untouched)) << "untouched of " << a.name;
    EXPECT_EQ(a.ceiling(), b.ceiling()) << a.name;
  }
}

void expect_independent_of_ranks(const CanonicalProblem& problem) {
  const Expected alone = compute_expected(problem, make_inputs(problem));
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Expected& expected : together(problem, ranks)) {
      SCOPED_TRACE(fmt::format("{} heads, {} kv heads, {} ranks", problem.heads, problem.kv_heads, ranks));
      expect_same(expected, alone);
    }
  }
}

TEST(HeadShare, CoversEveryHeadOnce) {
  for (const std::int64_t heads : {1, 2, 3, 8, 13}) {
    for (const int ranks : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const HeadShare share = head_share(heads, ranks, rank);
        EXPECT_EQ(share.first, next);
        EXPECT_LE(share.count, (heads + ranks - 1) / ranks);
        next += share.count;
      }
      EXPECT_EQ(next, heads);
    }
  }
}

TEST(ExpectedTogether, HasTheBitsOfOneRankAlone) {
  expect_independent_of_ranks(problem_with(8, 8));
}

TEST(ExpectedTogether, HasThemIfHeadsDoNotDivideByTheRanks) {
  expect_independent_of_ranks(problem_with(7, 7));
}

TEST(ExpectedTogether, HasThemIfHeadsShareKeys) {
  expect_independent_of_ranks(problem_with(12, 3));
  expect_independent_of_ranks(problem_with(4, 1));
}

TEST(ExpectedTogether, HasThemWithASinkAndABiasOfEachHead) {
  for (const BiasShape shape : {BiasShape::shape_1hss, BiasShape::shape_bhss}) {
    CanonicalProblem problem = problem_with(6, 3);
    problem.softmax = SoftmaxType::learnable;
    problem.bias = shape;
    expect_independent_of_ranks(problem);
  }
}

TEST(ExpectedTogether, HasThemOfTheForwardAlone) {
  CanonicalProblem problem = problem_with(6, 2);
  problem.training = false;
  problem.bias = BiasShape::shape_111s;
  expect_independent_of_ranks(problem);
}

// Shares use the query blocks of the whole problem; larger blocks would sum dk and dv in another order.
TEST(ExpectedTogether, HasThemIfTheQueriesTakeManyBlocks) {
  CanonicalProblem problem = problem_with(4, 2);
  problem.seqlens_q = problem.seqlens_kv = {1600};
  const Expected alone = compute_expected(problem, make_inputs(problem));
  expect_same(together(problem, 2).back(), alone);
}

// The sum over heads has another order, so values are equal except for rounding, and the bounds change little.
TEST(ExpectedTogether, AddsUpTheGradientOfABiasThatHeadsShare) {
  for (const BiasShape shape : {BiasShape::shape_b1ss, BiasShape::shape_11ss}) {
    CanonicalProblem problem = problem_with(6, 3);
    problem.bias = shape;
    const Expected alone = compute_expected(problem, make_inputs(problem));
    const ExpectedTensor& wanted = alone.tensor("dbias");
    for (const int ranks : {2, 4}) {
      for (const Expected& expected : together(problem, ranks)) {
        const ExpectedTensor& got = expected.tensor("dbias");
        EXPECT_TRUE(at::allclose(got.value, wanted.value, 1e-13, 1e-13));
        EXPECT_TRUE(at::allclose(got.bound, wanted.bound, 1e-2, 1e-5));
        EXPECT_TRUE(same_bits(got.untouched, wanted.untouched));
      }
    }
  }
}

TEST(ExpectedTogether, TakesTheCeilingFromAllHeads) {
  const CanonicalProblem problem = problem_with(2, 2);
  CanonicalInputs inputs = make_inputs(problem);
  inputs.q.select(1, 1).mul_(64);  // scores of one head are so large that bf16 rounds them badly
  const Expected alone = compute_expected(problem, inputs);
  run_ranks(2, [&](const CpGroups& groups, int) {
    const Expected expected = compute_expected_together(problem, inputs, *groups.cp);
    for (const ExpectedTensor& tensor : expected.tensors) {
      EXPECT_EQ(tensor.ceiling(), alone.tensor(tensor.name).ceiling()) << tensor.name;
    }
  });
  EXPECT_EQ(alone.tensor("dq").ceiling(), 0);
}

}  // namespace
}  // namespace cp_pool::verify
