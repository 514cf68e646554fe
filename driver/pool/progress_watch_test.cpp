#include "driver/pool/progress_watch.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr Clock::time_point kSent{std::chrono::hours(7)};

// The times, in seconds after the start, at which a case that runs until `end` is reported as slow.
std::vector<double> slow_at(ProgressWatch& watch, seconds end) {
  std::vector<double> out;
  for (Clock::time_point now = watch.next(); now < kSent + end; now = watch.next()) {
    const auto due = watch.take(now);
    if (due && due->slow) out.push_back(std::chrono::duration<double>(now - kSent).count());
  }
  return out;
}

TEST(ProgressWatch, ACaseIsSlowAgainAtGrowingIntervals) {
  ProgressWatch watch{kSent, seconds(10)};
  EXPECT_THAT(slow_at(watch, seconds(200)), ElementsAre(10, 20, 40, 80, 160));
}

TEST(ProgressWatch, NothingIsDueBeforeItsTimeAndNothingTwice) {
  ProgressWatch watch{kSent, seconds(10)};
  EXPECT_FALSE(watch.take(kSent + milliseconds(9999)));
  EXPECT_TRUE(watch.take(kSent + seconds(10)));
  EXPECT_FALSE(watch.take(kSent + seconds(10)));
}

// As when the driver was stopped for a while.
TEST(ProgressWatch, WhatWasMissedIsToldOnce) {
  ProgressWatch watch{kSent, seconds(10)};
  EXPECT_TRUE(watch.take(kSent + seconds(90)));
  EXPECT_EQ(watch.next(), kSent + seconds(160));
}

TEST(ProgressWatch, WithoutALimitNoCaseIsSlow) {
  ProgressWatch watch{kSent, milliseconds(0)};
  EXPECT_EQ(watch.next(), Clock::time_point::max());
  watch.reach("forward");
  EXPECT_EQ(watch.next(), kSent + seconds(1));
  const auto due = watch.take(kSent + std::chrono::hours(5));
  ASSERT_TRUE(due);
  EXPECT_FALSE(due->slow);
}

TEST(ProgressWatch, AShortCaseIsNotToldOfWhateverItsPhases) {
  ProgressWatch watch{kSent, seconds(10)};
  for (int i = 0; i < 9; ++i) {
    watch.reach(std::to_string(i));
    EXPECT_FALSE(watch.take(kSent + milliseconds(100 * i)));
  }
}

TEST(ProgressWatch, APhaseIsToldAtMostOnceASecondAndTheLastOneCounts) {
  ProgressWatch watch{kSent, seconds(10)};
  watch.reach("forward");
  EXPECT_EQ(watch.next(), kSent + seconds(1));
  EXPECT_FALSE(watch.take(kSent + seconds(1))->slow);
  watch.reach("backward");
  watch.reach("reference");
  EXPECT_FALSE(watch.take(kSent + milliseconds(1500)));
  EXPECT_TRUE(watch.take(kSent + seconds(2)));
  EXPECT_EQ(watch.phase(), "reference");
  watch.reach("reference");
  EXPECT_EQ(watch.next(), kSent + seconds(10)) << "nothing new";
}

}  // namespace
}  // namespace cp_pool
