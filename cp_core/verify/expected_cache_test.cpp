#include "cp_core/verify/expected_cache.h"

#include <atomic>
#include <stdexcept>
#include <thread>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

// Expected results of 800 bytes, counted as they are computed.
class ExpectedCacheTest : public testing::Test {
 protected:
  static CanonicalProblem problem(std::uint64_t seed) {
    CanonicalProblem result;
    result.seed = seed;
    return result;
  }

  ExpectedCache::Compute compute() {
    return [this](const CanonicalProblem&, const CanonicalInputs&) {
      ++computed_;
      Expected expected;
      expected.tensors.emplace_back();
      expected.tensors.back().value = at::zeros({100}, at::kDouble);
      return expected;
    };
  }

  std::atomic<int> computed_ = 0;
};

TEST_F(ExpectedCacheTest, ComputesAProblemOnce) {
  ExpectedCache cache(10000, compute());
  const auto first = cache.get(problem(1), {});
  EXPECT_EQ(cache.get(problem(1), {}), first);
  EXPECT_EQ(computed_, 1);
  cache.get(problem(2), {});
  EXPECT_EQ(computed_, 2);
}

TEST_F(ExpectedCacheTest, ForgetsTheLeastRecentlyUsedPastItsCapacity) {
  ExpectedCache cache(2 * 800, compute());
  cache.get(problem(1), {});
  cache.get(problem(2), {});
  cache.get(problem(1), {});
  cache.get(problem(3), {});  // 2 goes
  EXPECT_LE(cache.bytes(), 2U * 800U);
  computed_ = 0;
  cache.get(problem(1), {});
  cache.get(problem(3), {});
  EXPECT_EQ(computed_, 0);
  cache.get(problem(2), {});
  EXPECT_EQ(computed_, 1);
}

TEST_F(ExpectedCacheTest, GivesButDoesNotKeepWhatIsLargerThanItsCapacity) {
  ExpectedCache cache(100, compute());
  EXPECT_EQ(cache.get(problem(1), {})->bytes(), 800U);
  EXPECT_EQ(cache.bytes(), 0U);
}

TEST_F(ExpectedCacheTest, ComputesOnceForManyThreads) {
  ExpectedCache cache(10000, compute());
  {
    std::vector<std::jthread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i) threads.emplace_back([&] { cache.get(problem(1), {}); });
  }
  EXPECT_EQ(computed_, 1);
}

TEST_F(ExpectedCacheTest, TriesAgainAfterAFailure) {
  int tries = 0;
  ExpectedCache cache(10000, [&](const CanonicalProblem&, const CanonicalInputs&) -> Expected {
    if (++tries == 1) throw std::runtime_error("no memory");
    return {};
  });
  EXPECT_THROW(cache.get(problem(1), {}), std::runtime_error);
  EXPECT_NO_THROW(cache.get(problem(1), {}));
}

}  // namespace
}  // namespace cp_pool::verify
