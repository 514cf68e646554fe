#include "cp_core/verify/expected_cache.h"

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

TEST(ExpectedCache, ForgetsTheLeastRecentlyUsedPastItsCapacity) {
  ExpectedCache cache(2 * 800);
  cache.keep(problem(1), of_800_bytes());
  cache.keep(problem(2), of_800_bytes());
  EXPECT_NE(cache.find(problem(1)), nullptr);
  cache.keep(problem(3), of_800_bytes());  // 2 goes
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
