#include "cp_core/verify/expected_cache.h"

#include <iterator>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

CanonicalProblem problem(std::uint64_t seed) {
  CanonicalProblem result;
  result.seed = seed;
  return result;
}

std::shared_ptr<const Expected> of_800_bytes() {
  Expected expected;
  expected.tensors.emplace_back();
  expected.tensors.back().value = at::zeros({100}, at::kDouble);
  return std::make_shared<const Expected>(std::move(expected));
}

TEST(ExpectedCache, FindsWhatItWasGivenForThisProblem) {
  ExpectedCache cache(10000);
  const auto expected = of_800_bytes();
  cache.keep(problem(1), expected);
  EXPECT_EQ(cache.find(problem(1)), expected);
  EXPECT_EQ(cache.find(problem(2)), nullptr);
}

TEST(ExpectedCache, TellsProblemsApartByEachField) {
  using Change = void (*)(CanonicalProblem&);
  const Change changes[] = {[](CanonicalProblem& p) { p.seqlens_q = {8}; },
                            [](CanonicalProblem& p) { p.seqlens_kv = {8}; },
                            [](CanonicalProblem& p) { p.heads = 2; },
                            [](CanonicalProblem& p) { p.kv_heads = 2; },
                            [](CanonicalProblem& p) { p.head_dim_qk = 8; },
                            [](CanonicalProblem& p) { p.head_dim_v = 8; },
                            [](CanonicalProblem& p) { p.causal = true; },
                            [](CanonicalProblem& p) { p.window[0] = 3; },
                            [](CanonicalProblem& p) { p.window[1] = 3; },
                            [](CanonicalProblem& p) { p.chunk = 8; },
                            [](CanonicalProblem& p) { p.softmax = SoftmaxType::off_by_one; },
                            [](CanonicalProblem& p) { p.bias = BiasShape::shape_1hss; },
                            [](CanonicalProblem& p) { p.dtype = DType::fp16; },
                            [](CanonicalProblem& p) { p.training = false; },
                            [](CanonicalProblem& p) { p.input_scale = 2; },
                            [](CanonicalProblem& p) { p.score_offset = -100; },
                            [](CanonicalProblem& p) { p.whole_heads = 4; }};
  ExpectedCache cache(10000);
  cache.keep(problem(1), of_800_bytes());
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    CanonicalProblem other = problem(1);
    changes[i](other);
    EXPECT_EQ(cache.find(other), nullptr) << "change " << i;
  }
}

TEST(ExpectedCache, CountsAllThatIsExpected) {
  Expected expected;
  const at::Tensor of_80_bytes = at::zeros({10}, at::kDouble);
  expected.tensors.push_back({.name = "dbias",
                              .value = of_80_bytes,
                              .baseline_error = of_80_bytes,
                              .bound = of_80_bytes,
                              .untouched = of_80_bytes.eq(0.0)});
  expected.tensors.push_back({.name = "dq", .value = of_80_bytes, .baseline_error = {}, .bound = {}, .untouched = {}});
  EXPECT_EQ(expected.bytes(), 3U * 80U + 10U + 80U);
}

TEST(ExpectedCache, ForgetsTheLeastRecentlyUsedPastItsCapacity) {
  ExpectedCache cache(2 * 800);
  cache.keep(problem(1), of_800_bytes());
  cache.keep(problem(2), of_800_bytes());
  EXPECT_NE(cache.find(problem(1)), nullptr);
  cache.keep(problem(3), of_800_bytes());  // drops problem 2
  EXPECT_EQ(cache.bytes(), 2U * 800U);
  EXPECT_NE(cache.find(problem(1)), nullptr);
  EXPECT_EQ(cache.find(problem(2)), nullptr);
  EXPECT_NE(cache.find(problem(3)), nullptr);
}

TEST(ExpectedCache, DoesNotKeepWhatIsLargerThanItsCapacity) {
  ExpectedCache cache(100);
  cache.keep(problem(1), of_800_bytes());
  EXPECT_EQ(cache.find(problem(1)), nullptr);
  EXPECT_EQ(cache.bytes(), 0U);
}

TEST(ExpectedCache, KeepsOneOfEachProblem) {
  ExpectedCache cache(10000);
  cache.keep(problem(1), of_800_bytes());
  const auto newer = of_800_bytes();
  cache.keep(problem(1), newer);
  EXPECT_EQ(cache.find(problem(1)), newer);
  EXPECT_EQ(cache.bytes(), 800U);
}

}  // namespace
}  // namespace cp_pool::verify
