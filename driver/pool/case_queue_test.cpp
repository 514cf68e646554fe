#include "driver/pool/case_queue.h"

#include <algorithm>
#include <malloc.h>
#include <random>

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;

// A queue of cases of these groups, numbered from 0.
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
  EXPECT_THAT(queue.take_all_of(0), ElementsAre(9, 0, 1, 2, 3));
  EXPECT_TRUE(queue.empty());
  queue.add({4, 3});
  EXPECT_THAT(queue.take_all_of(0), ElementsAre(4));
}

// A simple model of the order for one client: the first case of a group that no other pool has, else the first case.
class OneClientsOrder {
 public:
  void add(QueuedCase waiting) { waiting_.push_back(waiting); }
  void put_back(QueuedCase waiting) { waiting_.push_front(waiting); }
  void forget(int pool) { groups_.erase(pool); }

  std::optional<QueuedCase> take(int pool) {
    if (waiting_.empty()) return std::nullopt;
    const auto is_free = [&](const QueuedCase& waiting) {
      return std::ranges::none_of(
          groups_, [&](const auto& owner) { return owner.first != pool && owner.second == waiting.group; });
    };
    auto found = std::ranges::find_if(waiting_, is_free);
    if (found == waiting_.end()) found = waiting_.begin();
    const QueuedCase out = *found;
    waiting_.erase(found);
    std::erase_if(groups_, [&](const auto& owner) { return owner.second == out.group; });
    groups_[pool] = out.group;
    return out;
  }

 private:
  std::deque<QueuedCase> waiting_;
  std::map<int, std::size_t> groups_;  // by pool
};

TEST(CaseQueue, GivesOneClientItsCasesByGroupAndInOrderUnderAnyUse) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    CaseQueue queue;
    OneClientsOrder expected;
    std::vector<QueuedCase> out;
    for (std::size_t step = 0; step < 500; ++step) {
      const int pool = static_cast<int>(random() % 4);
      switch (random() % 8) {
        case 0:
          queue.forget(pool);
          expected.forget(pool);
          break;
        case 1:
          if (out.empty()) break;
          queue.put_back(out.back());
          expected.put_back(out.back());
          out.pop_back();
          break;
        case 2:
        case 3:
        case 4: {
          const QueuedCase added{step, random() % 6};
          queue.add(added);
          expected.add(added);
          break;
        }
        default: {
          const auto next = queue.peek(pool);
          const auto taken = queue.take(pool);
          ASSERT_EQ(taken, expected.take(pool)) << "seed " << seed << ", step " << step;
          ASSERT_EQ(next, taken);
          if (taken) out.push_back(*taken);
        }
      }
    }
  }
}

// A queue of cases of these clients, numbered from 0, each in a group of its own.
CaseQueue queue_of_clients(const std::vector<int>& clients) {
  CaseQueue out;
  for (std::size_t i = 0; i < clients.size(); ++i) out.add({i, i, clients[i]});
  return out;
}

TEST(CaseQueue, LetsClientsTakeTurns) {
  CaseQueue queue = queue_of_clients({1, 1, 1, 1, 2, 2, 3});
  EXPECT_EQ(queue.clients_in_turn(), 3U);
  EXPECT_THAT(taken(queue, {7, 7, 7, 7}), ElementsAre(0, 4, 6, 1));
  queue.add({7, 7, 3});
  EXPECT_THAT(taken(queue, {7, 7, 7, 7}), ElementsAre(5, 2, 7, 3)) << "a client that comes again is last";
  EXPECT_TRUE(queue.empty());
}

TEST(CaseQueue, KeepsTheOrderOfEachClientsGroups) {
  CaseQueue queue;
  for (const int client : {1, 2}) {
    for (std::size_t i = 0; i < 4; ++i) queue.add({10 * static_cast<std::size_t>(client) + i, i / 2, client});
  }
  EXPECT_THAT(taken(queue, {1, 2, 1, 2}), ElementsAre(10, 22, 11, 23)) << "a pool has its group for all clients";
}

TEST(CaseQueue, RunsWhatComesBackBeforeTheCasesOfAllClients) {
  CaseQueue queue = queue_of_clients({1, 1, 2, 2});
  EXPECT_THAT(taken(queue, {7}), ElementsAre(0));
  queue.put_back({0, 0, 1});
  EXPECT_EQ(queue.next_client(), 1);
  EXPECT_THAT(taken(queue, {7, 7, 7, 7}), ElementsAre(0, 2, 1, 3));
}

TEST(CaseQueue, KeepsTheCasesOfAHeldClient) {
  CaseQueue queue = queue_of_clients({1, 2, 1, 2});
  queue.hold(1, true);
  queue.add({4, 4, 1});
  queue.put_back({5, 5, 1});
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_EQ(queue.held_size(), 4U);
  EXPECT_THAT(taken(queue, {7, 7}), ElementsAre(1, 3));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.peek(7), std::nullopt);
  EXPECT_EQ(queue.take(7), std::nullopt);
  queue.hold(1, false);
  queue.hold(1, false);
  EXPECT_EQ(queue.held_size(), 0U);
  EXPECT_THAT(taken(queue, {7, 7, 7, 7}), ElementsAre(5, 0, 2, 4));
}

TEST(CaseQueue, IsEmptiedOfOneClientInOrder) {
  CaseQueue queue = queue_of_clients({1, 2, 1, 2, 1});
  queue.put_back({9, 9, 1});
  EXPECT_THAT(queue.take_all_of(1), ElementsAre(9, 0, 2, 4));
  EXPECT_THAT(queue.take_all_of(1), ElementsAre());
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_THAT(taken(queue, {7, 7}), ElementsAre(1, 3));
}

TEST(CaseQueue, IsEmptiedOfAClientThatIsHeldWhichIsThenForgotten) {
  CaseQueue queue = queue_of_clients({1, 2, 1});
  queue.hold(1, true);
  EXPECT_THAT(queue.take_all_of(1), ElementsAre(0, 2));
  EXPECT_EQ(queue.held_size(), 0U);
  queue.add({3, 3, 1});
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_THAT(taken(queue, {7, 7}), ElementsAre(1, 3));
}

TEST(CaseQueue, KeepsNothingOfClientsThatHaveGone) {
  constexpr std::size_t kSmall = 4096;  // bytes; a number kept of each client would take a hundred times as many
  CaseQueue queue;
  std::size_t before = 0;
  for (int client = 1; client <= 20000; ++client) {
    const auto index = static_cast<std::size_t>(client);
    if (client % 3 == 0) queue.hold(client, true);
    queue.add({index, index, client});
    queue.add({index, index + 1, client});
    if (client % 2 == 0) {
      queue.take_all_of(client);
    } else {
      queue.hold(client, false);
      while (queue.take(client % 4)) {
      }
    }
    if (client == 100) before = ::mallinfo2().uordblks;
  }
  EXPECT_LT(::mallinfo2().uordblks, before + kSmall);
}

}  // namespace
}  // namespace cp_pool
