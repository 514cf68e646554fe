#include "worker/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

CaseArrived arrived(int rank, std::vector<BegunInGroup> begun) {
  return {.rank = rank, .seq = 1, .begun = std::move(begun)};
}

TEST(Arrivals, AreCompleteWithTheLastRank) {
  Arrivals arrivals;
  EXPECT_TRUE(arrivals.none());
  arrivals.add(arrived(2, {}));
  EXPECT_FALSE(arrivals.none());
  EXPECT_FALSE(arrivals.all_of(3));
  EXPECT_THAT(arrivals.absent(3), ElementsAre(0, 1));
  arrivals.add(arrived(0, {}));
  arrivals.add(arrived(1, {}));
  EXPECT_TRUE(arrivals.all_of(3));
  EXPECT_THAT(arrivals.absent(3), IsEmpty());
  arrivals.clear();
  EXPECT_TRUE(arrivals.none());
}

TEST(Arrivals, NameTheRankThatHasBegunMoreThanTheFirstOfItsGroup) {
  Arrivals arrivals;
  arrivals.add(arrived(2, {{"", 0, 5}}));
  arrivals.add(arrived(0, {{"", 0, 4}}));
  arrivals.add(arrived(1, {{"", 0, 4}}));
  EXPECT_EQ(arrivals.difference(), "rank 2 has begun 5 operations, rank 0 has begun 4");
}

TEST(Arrivals, CompareInnerGroupsEachForItself) {
  Arrivals arrivals;
  for (int rank = 0; rank < 4; ++rank) {
    arrivals.add(arrived(rank, {{"", 0, 4}, {" of its inner group", rank / 2 * 2, rank / 2}}));
  }
  EXPECT_EQ(arrivals.difference(), "");
  Arrivals other;
  for (int rank = 0; rank < 4; ++rank) {
    other.add(arrived(rank, {{"", 0, 4}, {" of its inner group", rank / 2 * 2, rank == 3 ? 1 : 0}}));
  }
  EXPECT_EQ(other.difference(), "rank 3 has begun 1 operations of its inner group, rank 2 has begun 0");
}

}  // namespace
}  // namespace cp_pool
