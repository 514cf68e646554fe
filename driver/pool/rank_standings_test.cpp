#include "driver/pool/rank_standings.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

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
