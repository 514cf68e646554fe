#include "driver/rank_names.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(RankNames, JoinThreeAndMoreThatFollowEachOther) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({1, 0}), "ranks 0, 1");
  EXPECT_EQ(name_ranks({0, 2, 1}), "ranks 0-2");
  EXPECT_EQ(name_ranks({9, 0, 1, 2, 3, 4, 5, 6, 12, 13}), "ranks 0-6, 9, 12, 13");
}

TEST(RankNames, HaveACharacterForEachRankOfACase) {
  EXPECT_EQ(rank_letter(0), '0');
  EXPECT_EQ(rank_letter(10), 'a');
  EXPECT_EQ(rank_letter(61), 'Z');
  EXPECT_EQ(rank_letter(63), '&');
  EXPECT_EQ(rank_letter(64), '?');
  EXPECT_EQ(rank_letter(-1), '?');
}

}  // namespace
}  // namespace cp_pool
