#include "cp_core/perf/step_times.h"

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool {
namespace {

using testing::SizeIs;

TEST(StepTimes, AreThoseOfTheTimedStepsAlone) {
  std::atomic<int> steps = 0;
  run_ranks(2, [&](const CpGroups& groups, int) {
    const auto times = time_steps(*groups.cp, at::kCPU, {.warmup = 3, .iterations = 4}, [&] { ++steps; });
    EXPECT_THAT(times, SizeIs(4));
  });
  EXPECT_EQ(steps, 2 * (3 + 4));
}

TEST(StepTimes, NoRankBeginsAStepBeforeTheOthersHaveEndedTheirs) {
  std::atomic<int> ended = 0;
  std::atomic<bool> too_early = false;
  run_ranks(3, [&](const CpGroups& groups, int) {
    int step = 0;
    time_steps(*groups.cp, at::kCPU, {.warmup = 1, .iterations = 20}, [&] {
      if (ended < 3 * step++) too_early = true;
      ++ended;
    });
  });
  EXPECT_FALSE(too_early);
}

}  // namespace
}  // namespace cp_pool
