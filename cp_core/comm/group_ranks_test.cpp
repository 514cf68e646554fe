#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(GroupRanks, OfOneGroupAreAll) {
  EXPECT_THAT(group_ranks(1, 3).cp, ElementsAre(0, 1, 2));
  EXPECT_THAT(group_ranks(1, 3).inner, IsEmpty());
  EXPECT_THAT(group_ranks(2, 4).inner, ElementsAre(2, 3));
  EXPECT_THAT(group_ranks(2, 4).outer, ElementsAre(0, 2));
}

TEST(GroupRanks, OfSeveralAreThoseOfTheDivision) {
  EXPECT_THAT(group_ranks(0, 4, strided(4, 2)).cp, ElementsAre(0, 2));
  EXPECT_THAT(group_ranks(3, 4, strided(4, 2)).cp, ElementsAre(1, 3));
  EXPECT_THAT(group_ranks(4, 9, strided(9, 3)).cp, ElementsAre(1, 4, 7));
  EXPECT_THAT(group_ranks(2, 4, strided(4, 4)).cp, ElementsAre(2));
  EXPECT_THAT(group_ranks(2, 4, {.groups = {1, 0, 0, 1}}).cp, ElementsAre(1, 2));
  EXPECT_THAT(group_ranks(0, 4, strided(4, 2)).inner, IsEmpty()) << "pairs need four ranks of a group";
}

TEST(GroupRanks, HavePairsAndRingsWithinTheirGroup) {
  const GroupRanks ranks = group_ranks(5, 8, strided(8, 2));
  EXPECT_THAT(ranks.cp, ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(ranks.inner, ElementsAre(5, 7));
  EXPECT_THAT(ranks.outer, ElementsAre(1, 5));
}

TEST(GroupRanks, HaveInnerGroupsOfAnySize) {
  EXPECT_THAT(group_ranks(6, 8, strided(8, 1, 4)).inner, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(group_ranks(6, 8, strided(8, 1, 4)).outer, ElementsAre(2, 6));
  EXPECT_THAT(group_ranks(9, 24, strided(24, 1, 8)).inner, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(group_ranks(9, 24, strided(24, 1, 8)).outer, ElementsAre(1, 9, 17));
  EXPECT_THAT(group_ranks(3, 16, strided(16, 2, 4)).inner, ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(group_ranks(0, 4, strided(4, 1, 4)).inner, IsEmpty()) << "a ring has several inner groups";
}

}  // namespace
}  // namespace cp_pool
