#include "driver/pool/slot_table.h"

#include <string>

#include <gmock/gmock.h>

namespace cp_pool::fleet_test {
namespace {

using testing::AnyOf;
using testing::ElementsAre;

// Distances of slots: 0 if they have the same name, 1 otherwise.
SlotDistances islands(const std::string& names) {
  SlotDistances out(names.size(), std::vector<int>(names.size(), 0));
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (std::size_t j = 0; j < names.size(); ++j) out[i][j] = names[i] == names[j] ? 0 : 1;
  }
  return out;
}

SlotTable table(const SlotDistances& distances) {
  return SlotTable(static_cast<int>(distances.size()), distances);
}

TEST(SlotTable, WithoutDistancesTakesTheShortestRowThatIsLongEnough) {
  SlotTable slots(8);
  std::vector<int> first = slots.take(3);
  EXPECT_THAT(first, ElementsAre(0, 1, 2));
  EXPECT_THAT(slots.take(2), ElementsAre(3, 4));
  slots.give_back(first);
  EXPECT_THAT(slots.take(2), ElementsAre(0, 1));
  EXPECT_THAT(slots.take(4), ElementsAre(2, 5, 6, 7)) << "no row has four";
  EXPECT_EQ(slots.free(), 0);
}

TEST(SlotTable, WithEqualDistancesDoesAsWithoutAny) {
  for (const SlotDistances& distances : {islands("aaaaa"), islands("abcde")}) {
    SlotTable slots = table(distances);
    std::vector<int> first = slots.take(3);
    EXPECT_THAT(first, ElementsAre(0, 1, 2));
    EXPECT_THAT(slots.take(1), ElementsAre(3));
    slots.give_back(first);
    EXPECT_THAT(slots.take(1), ElementsAre(4)) << "the shortest row";
  }
}

TEST(SlotTable, StaysInAnIslandWhereThereIsRoom) {
  SlotTable slots = table(islands("aaaabbbb"));
  EXPECT_THAT(slots.take(2), ElementsAre(0, 1));
  EXPECT_THAT(slots.take(4), ElementsAre(4, 5, 6, 7)) << "2 and 3 are too few";
  EXPECT_THAT(slots.take(2), ElementsAre(2, 3));
}

TEST(SlotTable, BreaksTheIslandThatIsBrokenAlready) {
  SlotTable slots = table(islands("aaaabbbb"));
  std::vector<int> first = slots.take(3);
  EXPECT_THAT(first, ElementsAre(0, 1, 2));
  EXPECT_THAT(slots.take(1), ElementsAre(3)) << "so that four stay together";
  EXPECT_THAT(slots.take(4), ElementsAre(4, 5, 6, 7));
}

// Slots with consecutive numbers are not neighbours here.
TEST(SlotTable, FindsPairsThatBridgesJoin) {
  SlotTable slots = table(islands("abcdabcd"));
  EXPECT_THAT(slots.take(2), ElementsAre(0, 4));
  EXPECT_THAT(slots.take(2), ElementsAre(1, 5));
  EXPECT_THAT(slots.take(4), ElementsAre(2, 3, 6, 7)) << "two pairs that are whole";
}

TEST(SlotTable, OfMoreThanAnIslandHasTakesWholeOnes) {
  SlotTable slots = table(islands("abab"));
  EXPECT_THAT(slots.take(3), AnyOf(ElementsAre(0, 1, 2), ElementsAre(0, 2, 3)));
  SlotTable all = table(islands("abab"));
  EXPECT_THAT(all.take(4), ElementsAre(0, 1, 2, 3));
}

// NVLink joins pairs of GPUs on two sockets. GPUs without NVLink between them are nearer on the same socket.
TEST(SlotTable, PrefersTheNearerOfTwoIslands) {
  SlotDistances distances(8, std::vector<int>(8, 5));
  const std::vector<std::vector<int>> sockets{{0, 2, 4, 6}, {1, 3, 5, 7}};
  for (const std::vector<int>& socket : sockets) {
    for (const int i : socket) {
      for (const int j : socket) {
        const bool joined = i / 4 == j / 4;
        distances[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = joined ? 0 : 3;
      }
    }
  }
  SlotTable slots = table(distances);
  EXPECT_THAT(slots.take(4), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(slots.take(2), ElementsAre(1, 3));
  EXPECT_THAT(slots.take(2), ElementsAre(5, 7));
}

TEST(SlotTable, APoolIsOnOneHostWhereItCanBe) {
  SlotTable slots(8, {}, {4, 4});
  EXPECT_THAT(slots.take(3), ElementsAre(0, 1, 2));
  EXPECT_THAT(slots.take(2), ElementsAre(4, 5));  // and not 3 and 4, which are neighbours on two hosts
  EXPECT_THAT(slots.take(2), ElementsAre(6, 7));
  EXPECT_EQ(slots.free(), 1);
}

TEST(SlotTable, APoolTakesTheHostThatItFillsBest) {
  SlotTable slots(7, {}, {4, 2, 1});
  EXPECT_THAT(slots.take(1), ElementsAre(6));
  EXPECT_THAT(slots.take(2), ElementsAre(4, 5));
  EXPECT_THAT(slots.take(4), ElementsAre(0, 1, 2, 3));
}

TEST(SlotTable, AHostWithRoomThatIsNoRowIsBetterThanTwoHosts) {
  SlotTable slots(6, {}, {3, 3});
  std::vector<int> first = slots.take(1);
  std::vector<int> second = slots.take(1);
  EXPECT_THAT(second, ElementsAre(1));
  slots.give_back(first);
  std::vector<int> other = slots.take(3);
  EXPECT_THAT(other, ElementsAre(3, 4, 5));
  EXPECT_THAT(slots.take(2), ElementsAre(0, 2));
}

TEST(SlotTable, APoolThatNeedsSeveralHostsTakesThoseWithMostRoom) {
  SlotTable slots(8, {}, {2, 4, 2});
  std::vector<int> one = slots.take(1);
  EXPECT_THAT(one, ElementsAre(0));
  EXPECT_THAT(slots.take(6), ElementsAre(2, 3, 4, 5, 6, 7));
}

TEST(SlotTable, WithoutALimitNumbersNothing) {
  SlotTable slots(std::nullopt);
  EXPECT_THAT(slots.take(5), ElementsAre());
  EXPECT_EQ(slots.held_by(9), 9);
}

}  // namespace
}  // namespace cp_pool::fleet_test
