#include "driver/fleet/case_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;

// Cases of these groups, numbered from 0.
CaseQueue queue_of(const std::vector<std::size_t>& groups) {
  CaseQueue out;
  for (std::size_t i = 0; i < groups.size(); ++i) out.add({i, groups[i]});
  return out;
}

std::vector<std::size_t> taken(CaseQueue& queue, const std::vector<int>& pools) {
  std::vector<std::size_t> out;
  for (const int pool : pools) out.push_back(queue.take(pool)->index);
  return out;
}

TEST(CaseQueue, GivesASinglePoolItsCasesInOrder) {
  CaseQueue queue = queue_of({1, 2, 1, 3, 2});
  EXPECT_EQ(queue.size(), 5U);
  EXPECT_THAT(taken(queue, {7, 7, 7, 7, 7}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.take(7), std::nullopt);
}

TEST(CaseQueue, LetsPoolsSideBySideStayWithAGroupEach) {
  CaseQueue queue = queue_of({1, 1, 1, 2, 2, 2});
  EXPECT_THAT(taken(queue, {1, 2, 1, 2}), ElementsAre(0, 3, 1, 4));
}

TEST(CaseQueue, SharesTheLastGroup) {
  CaseQueue queue = queue_of({1, 1, 1, 2});
  EXPECT_THAT(taken(queue, {1, 2, 2, 1}), ElementsAre(0, 3, 1, 2));
}

TEST(CaseQueue, GivesTheGroupOfALostPoolToTheNext) {
  CaseQueue queue = queue_of({1, 1, 2, 2});
  EXPECT_THAT(taken(queue, {1}), ElementsAre(0));
  queue.forget(1);
  EXPECT_THAT(taken(queue, {2}), ElementsAre(1));
}

TEST(CaseQueue, TellsWhatAPoolWouldGet) {
  CaseQueue queue = queue_of({1, 1, 2});
  EXPECT_EQ(queue.take(1), (QueuedCase{0, 1}));
  EXPECT_EQ(queue.peek(1), (QueuedCase{1, 1}));
  EXPECT_EQ(queue.peek(2), (QueuedCase{2, 2}));
}

TEST(CaseQueue, RunsWhatComesBackFirst) {
  CaseQueue queue = queue_of({1, 1, 2});
  EXPECT_THAT(taken(queue, {1, 1}), ElementsAre(0, 1));
  queue.put_back({1, 1});
  queue.put_back({0, 1});
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_THAT(taken(queue, {1, 1, 1}), ElementsAre(0, 1, 2));
}

TEST(CaseQueue, IsEmptiedInOrder) {
  CaseQueue queue = queue_of({3, 1, 3, 2});
  queue.put_back({9, 2});
  EXPECT_THAT(queue.take_all(), ElementsAre(9, 0, 1, 2, 3));
  EXPECT_TRUE(queue.empty());
  queue.add({4, 3});
  EXPECT_THAT(queue.take_all(), ElementsAre(4));
}

}  // namespace
}  // namespace cp_pool
