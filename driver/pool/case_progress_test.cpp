#include "driver/pool/case_progress.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

TEST(RankStandings, HaveThePhaseOfEachRankAndNameThoseThatDoNotAnswer) {
  const protocol::PongEvent pong{
      .seq = 7,
      .ranks = {0, 2},
      .phases = {{2, "barrier", 5.5, "barrier on group cp", 4.5}, {0, "forward", 12, "", 0}}};
  const auto ranks = rank_standings(pong, 3, true);
  ASSERT_THAT(ranks, SizeIs(3));
  EXPECT_EQ(ranks[0].phase, "forward");
  EXPECT_EQ(ranks[0].ms, 12);
  EXPECT_FALSE(ranks[0].silent);
  EXPECT_EQ(ranks[1].rank, 1);
  EXPECT_TRUE(ranks[1].silent);
  EXPECT_EQ(ranks[2].operation, "barrier on group cp");
  EXPECT_EQ(ranks[2].operation_ms, 4.5);
}

TEST(RankStandings, AWorkerThatTellsNoPhasesMayNameRankZeroAlone) {
  const auto ranks = rank_standings(protocol::PongEvent{.seq = 7}, 3, true);
  ASSERT_THAT(ranks, SizeIs(1));
  EXPECT_EQ(ranks[0].rank, 0);
  EXPECT_FALSE(ranks[0].silent);
  EXPECT_EQ(ranks[0].phase, "");
}

TEST(RankStandings, WithoutAPongRankZeroIsSilentIfItWouldHaveAnswered) {
  EXPECT_THAT(rank_standings(std::nullopt, 3, false), IsEmpty());
  const auto ranks = rank_standings(std::nullopt, 3, true);
  ASSERT_THAT(ranks, SizeIs(1));
  EXPECT_TRUE(ranks[0].silent);
}

TEST(RankStandings, TakeNothingElseFromAPong) {
  const protocol::PongEvent pong{
      .seq = 7,
      .ranks = {0, 0, -1, 9},
      .phases = {{9, "x", 1, "", 0}, {0, std::string(100'000, 'x'), std::nan(""), "", -3}, {0, "y", 1, "", 0}}};
  const auto ranks = rank_standings(pong, 1, true);
  ASSERT_THAT(ranks, SizeIs(1));
  EXPECT_LT(ranks[0].phase.size(), 1000U);
  EXPECT_EQ(ranks[0].ms, 0);
  EXPECT_EQ(ranks[0].operation_ms, 0);
}

}  // namespace
}  // namespace cp_pool
