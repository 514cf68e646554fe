#include <gmock/gmock.h>

#include "worker/group_differences.h"

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

TEST(Arrivals, NameARankThatHasDeclinedTheCaseWhileAnotherHasNotOrDidElsewhere) {
  const auto declined = [](int rank, std::string place) {
    return CaseArrived{.rank = rank, .seq = 1, .begun = {}, .declined = std::move(place)};
  };
  Arrivals together;
  together.add(declined(1, "step 1"));
  EXPECT_TRUE(together.any_declined());
  together.add(declined(0, "step 1"));
  EXPECT_EQ(together.difference(), "");
  Arrivals apart;
  apart.add(declined(1, "step 2"));
  apart.add(declined(0, "step 1"));
  EXPECT_EQ(apart.difference(), "rank 1 declined the case in step 2, rank 0 declined the case in step 1");
  Arrivals alone;
  alone.add(arrived(0, {}));
  EXPECT_FALSE(alone.any_declined());
  alone.add(declined(1, "step 1"));
  EXPECT_EQ(alone.difference(), "rank 1 declined the case in step 1, rank 0 ran the case");
}

}  // namespace
}  // namespace cp_pool
