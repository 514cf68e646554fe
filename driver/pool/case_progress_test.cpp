#include "driver/pool/case_progress.h"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::time_point kSent{std::chrono::hours(7)};

TEST(ProgressWatch, ACaseIsSlowAgainAtGrowingIntervals) {
  ProgressWatch watch{kSent, seconds(10)};
  EXPECT_FALSE(watch.take(kSent + milliseconds(9999)));
  for (const int slow_at : {10, 20, 40, 80}) {
    EXPECT_EQ(watch.next(), kSent + seconds(slow_at));
    const auto due = watch.take(watch.next());
    EXPECT_EQ(due, true);
    EXPECT_FALSE(watch.take(kSent + seconds(slow_at)));
  }
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
  EXPECT_FALSE(*due);
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
  EXPECT_EQ(watch.take(kSent + seconds(1)), false);
  watch.reach("backward");
  watch.reach("reference");
  EXPECT_FALSE(watch.take(kSent + milliseconds(1500)));
  EXPECT_TRUE(watch.take(kSent + seconds(2)));
  EXPECT_EQ(watch.phase(), "reference");
  watch.reach("reference");
  EXPECT_EQ(watch.next(), kSent + seconds(10)) << "nothing new";
}

// Each standing as "rank phase ms operation operation_ms", or "rank silent".
std::string text_of(const std::vector<RankStanding>& standings) {
  std::string out;
  for (const RankStanding& one : standings) {
    out += one.silent ? fmt::format("{} silent; ", one.rank)
                      : fmt::format("{} {} {} {} {}; ", one.rank, one.phase, one.ms, one.operation, one.operation_ms);
  }
  return out;
}

TEST(RankStandings, HaveThePhaseOfEachRankAndNameThoseThatDoNotAnswer) {
  const protocol::PongEvent pong{
      .seq = 7, .ranks = {0, 2}, .phases = {{2, "barrier", 5.5, "send", 4.5}, {0, "forward", 12, "", 0}}};
  EXPECT_EQ(text_of(rank_standings(pong, 3, true)), "0 forward 12  0; 1 silent; 2 barrier 5.5 send 4.5; ");
}

TEST(RankStandings, AWorkerThatTellsNoPhasesMayNameRankZeroAlone) {
  EXPECT_EQ(text_of(rank_standings(protocol::PongEvent{.seq = 7}, 3, true)), "0  0  0; ");
}

TEST(RankStandings, WithoutAPongRankZeroIsSilentIfItWouldHaveAnswered) {
  EXPECT_EQ(text_of(rank_standings(std::nullopt, 3, false)), "");
  EXPECT_EQ(text_of(rank_standings(std::nullopt, 3, true)), "0 silent; ");
}

TEST(RankStandings, TakeNothingElseFromAPong) {
  const protocol::PongEvent pong{
      .seq = 7,
      .ranks = {0, 0, -1, 9},
      .phases = {{9, "x", 1, "", 0}, {0, std::string(100'000, 'x'), std::nan(""), "", -3}, {0, "y", 1, "", 0}}};
  std::vector<RankStanding> ranks = rank_standings(pong, 1, true);
  EXPECT_LT(ranks.at(0).phase.size(), 1000U);
  ranks[0].phase.clear();
  EXPECT_EQ(text_of(ranks), "0  0  0; ");
}

}  // namespace
}  // namespace cp_pool
