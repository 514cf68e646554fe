#include "cases/comm_facts.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_groups.h"
#include "cases/case_names.h"

namespace cp_pool {
namespace {

constexpr RankBytes kBytes{.q = 640, .kv = 1280, .out = 320, .dkv_sums = 2560, .statistic = 64};

// Calls fn(type, facts, size) for every type and every size that the type takes.
template <typename Fn>
void for_each_type_and_size(Fn fn) {
  for (const CommType type : kValues<CommType>) {
    for (int size = 1; size <= kMostCaseRanks; ++size) {
      if (facts_of(type).takes_size(size)) fn(type, facts_of(type), size);
    }
  }
}

TEST(CommFacts, EveryTypeSaysWhatItExchangesAndTakesSomeSize) {
  std::set<CommType> taking;
  for_each_type_and_size([&](CommType type, const CommFacts&, int) { taking.insert(type); });
  EXPECT_THAT(taking, testing::UnorderedElementsAreArray(kValues<CommType>));
  for (const CommType type : kValues<CommType>) {
    const CommFacts& facts = facts_of(type);
    EXPECT_FALSE(facts.exchange.empty()) << to_string(type);
    int refused = 0;
    for (int size = 1; size <= kMostCaseRanks; ++size) refused += facts.takes_size(size) ? 0 : 1;
    EXPECT_EQ(refused > 0, !facts.sizes.empty()) << to_string(type);
  }
}

TEST(CommFacts, HeadsAreSplitOverGroupsThatTheRanksDivideInto) {
  for_each_type_and_size([](CommType type, const CommFacts& facts, int size) {
    const int ranks = facts.head_ranks(size);
    EXPECT_TRUE(ranks >= 1 && size % ranks == 0) << to_string(type) << " of " << size << ": " << ranks;
  });
}

TEST(CommFacts, TypesWhoseHeadsAreSplitOverSomeRanksAgreeOnTheirGroups) {
  for_each_type_and_size([](CommType type, const CommFacts& facts, int size) {
    const int ranks = facts.head_ranks(size);
    if (ranks > 1 && ranks < size) {
      EXPECT_EQ(ranks, inner_ranks(size)) << to_string(type) << " of " << size;
    }
  });
  for (const int with_pairs : {4, 6, 8, 64}) EXPECT_EQ(inner_ranks(with_pairs), 2) << with_pairs;
  for (const int without : {1, 2, 3, 5, 7, 63}) EXPECT_EQ(inner_ranks(without), 0) << without;
}

TEST(CommFacts, OneRankSendsNothingAndSeveralSendBothWays) {
  for_each_type_and_size([](CommType type, const CommFacts& facts, int size) {
    const Traffic traffic = facts.traffic(kBytes, size);
    EXPECT_EQ(traffic.forward > 0, size > 1) << to_string(type) << " of " << size;
    EXPECT_EQ(traffic.backward > 0, size > 1) << to_string(type) << " of " << size;
  });
}

TEST(CommFacts, TheMessagesAddUpToTheTraffic) {
  for_each_type_and_size([](CommType type, const CommFacts& facts, int size) {
    const RankBytes bytes{
        .q = 640L * size, .kv = 1280L * size, .out = 320L * size, .dkv_sums = 2560L * size, .statistic = 64L * size};
    std::vector<Traffic> sent(static_cast<std::size_t>(size));
    for (const Exchange& exchange : facts.exchanges(bytes, size)) {
      EXPECT_FALSE(exchange.what.empty());
      for (const Message& message : exchange.messages) {
        EXPECT_NE(message.from, message.to);
        EXPECT_TRUE(message.to >= 0 && message.to < size) << to_string(type) << " of " << size;
        Traffic& of_rank = sent.at(static_cast<std::size_t>(message.from));
        (exchange.pass == Pass::forward ? of_rank.forward : of_rank.backward) += exchange.times * message.bytes;
      }
    }
    const Traffic expected = facts.traffic(bytes, size);
    for (const Traffic& of_rank : sent) {
      EXPECT_EQ(of_rank.forward, expected.forward) << to_string(type) << " of " << size;
      EXPECT_EQ(of_rank.backward, expected.backward) << to_string(type) << " of " << size;
    }
  });
}

TEST(CommFacts, TheRingOfEverySecondRankTurnsBetweenTheTradesOfThePairs) {
  const std::vector<Exchange> exchanges = facts_of(CommType::a2a_p2p).exchanges(kBytes, 6);
  std::vector<std::string> said;
  for (const Exchange& exchange : exchanges) {
    const Message& of_rank_1 = *std::ranges::find(exchange.messages, 1, &Message::from);
    said.push_back(exchange.what.substr(0, exchange.what.find_first_of(":,")) + " to " + std::to_string(of_rank_1.to));
  }
  EXPECT_THAT(said,
              testing::ElementsAre("q to 0", "k and v go to the next rank of the ring to 3", "out and lse to 0",
                                   "dout and a statistic to 0", "k and v go back to the previous rank of the ring to 5",
                                   "the sums of dk and dv follow k and v to the previous rank to 5", "dq to 0"));
}

TEST(CommFacts, PairsInARingSendAsAPairAndAsARing) {
  const Traffic traffic = facts_of(CommType::a2a_p2p).traffic(kBytes, 6);
  const std::int64_t to_other = (kBytes.q + kBytes.kv + kBytes.out + kBytes.statistic) / 2;
  EXPECT_EQ(traffic.forward, to_other + 2 * kBytes.kv);
  EXPECT_EQ(traffic.backward, to_other + kBytes.kv + 2 * kBytes.dkv_sums);
}

TEST(CommFacts, HeadsThatDoNotDivideAreNamed) {
  Case c;
  c.cp_size = 4;
  c.heads = 6;
  c.kv_heads = 2;
  for (const CommType type : {CommType::p2p, CommType::all_gather, CommType::a2a_p2p}) {
    c.comm = type;
    EXPECT_EQ(heads_do_not_divide(c), "") << to_string(type);
  }
  c.comm = CommType::a2a;
  EXPECT_EQ(heads_do_not_divide(c), "a2a splits heads over 4 ranks: 6 heads and 2 kv_heads do not both divide by 4");
  c.comm = CommType::a2a_p2p;
  c.kv_heads = 3;
  EXPECT_EQ(heads_do_not_divide(c),
            "a2a+p2p splits heads over 2 ranks: 6 heads and 3 kv_heads do not both divide by 2");
}

}  // namespace
}  // namespace cp_pool
