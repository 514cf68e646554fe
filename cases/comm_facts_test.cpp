#include "cases/comm_facts.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_groups.h"

namespace cp_pool {
namespace {

constexpr RankBytes kBytes{
    .heads = 64, .kv_heads = 64, .q = 640, .kv = 1280, .out = 320, .dkv_sums = 2560, .statistic = 64};

// Calls fn(type, facts, ranks) for every type and every number of ranks that the type takes.
template <typename Fn>
void for_each_type_and_size(Fn fn) {
  for (const CommType type : kValues<CommType>) {
    for (int size = 1; size <= kMostCaseRanks; ++size) {
      for (const int inner : {2, 4, 8}) {
        if (facts_of(type).takes_size({size, inner})) fn(type, facts_of(type), RankCounts{size, inner});
      }
    }
  }
}

TEST(CommFacts, EveryTypeSaysWhatItExchangesAndTakesSomeSize) {
  std::set<CommType> taking;
  for_each_type_and_size([&](CommType type, const CommFacts&, RankCounts) { taking.insert(type); });
  EXPECT_THAT(taking, testing::UnorderedElementsAreArray(kValues<CommType>));
  for (const CommType type : kValues<CommType>) {
    const CommFacts& facts = facts_of(type);
    EXPECT_FALSE(facts.exchange.empty()) << to_string(type);
    int refused = 0;
    for (int size = 1; size <= kMostCaseRanks; ++size) refused += facts.takes_size({size}) ? 0 : 1;
    EXPECT_EQ(refused > 0, !facts.sizes.empty()) << to_string(type);
  }
}

TEST(CommFacts, HeadsAreSplitOverGroupsThatTheRanksDivideInto) {
  for_each_type_and_size([](CommType type, const CommFacts& facts, RankCounts size) {
    const int ranks = facts.head_ranks(size);
    EXPECT_TRUE(ranks >= 1 && size.all % ranks == 0) << to_string(type) << " of " << size.all << ": " << ranks;
  });
}

TEST(CommFacts, TypesWhoseHeadsAreSplitOverSomeRanksAgreeOnTheirGroups) {
  for_each_type_and_size([](CommType type, const CommFacts& facts, RankCounts size) {
    const int ranks = facts.head_ranks(size);
    if (ranks > 1 && ranks < size.all) {
      EXPECT_EQ(ranks, inner_ranks(size)) << to_string(type) << " of " << size.all;
    }
  });
  for (const int with_pairs : {4, 6, 8, 64}) EXPECT_EQ(inner_ranks({with_pairs}), 2) << with_pairs;
  for (const int without : {1, 2, 3, 5, 7, 63}) EXPECT_EQ(inner_ranks({without}), 0) << without;
  EXPECT_EQ(inner_ranks({.all = 8, .inner = 4}), 4);
  for (const int without : {4, 6, 10}) EXPECT_EQ(inner_ranks({.all = without, .inner = 4}), 0) << without;
}

TEST(CommFacts, OneRankSendsNothingAndSeveralSendBothWaysToOtherRanks) {
  for_each_type_and_size([](CommType type, const CommFacts& facts, RankCounts size) {
    std::set<Pass> passes;
    for (const Exchange& exchange : facts.exchanges(kBytes, size)) {
      EXPECT_FALSE(exchange.what.empty());
      for (const Message& message : exchange.messages) {
        EXPECT_NE(message.from, message.to);
        EXPECT_TRUE(message.to >= 0 && message.to < size.all) << to_string(type) << " of " << size.all;
        if (message.bytes > 0) passes.insert(exchange.pass);
      }
    }
    EXPECT_EQ(passes.size(), size.all > 1 ? 2 : 0) << to_string(type) << " of " << size.all;
  });
}

TEST(CommFacts, TheRingOfEverySecondRankTurnsBetweenTheTradesOfThePairs) {
  const std::vector<Exchange> exchanges = facts_of(CommType::a2a_p2p).exchanges(kBytes, {6});
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

// The bytes that a rank sends forward, then backward.
std::vector<std::int64_t> sent_by(int rank, const std::vector<Exchange>& exchanges) {
  std::vector<std::int64_t> sent(2);
  for (const Exchange& exchange : exchanges) {
    for (const Message& message : exchange.messages) {
      if (message.from == rank) sent[exchange.pass == Pass::forward ? 0 : 1] += exchange.times * message.bytes;
    }
  }
  return sent;
}

TEST(CommFacts, PairsInARingSendAsAPairAndAsARing) {
  const std::vector<Exchange> exchanges = facts_of(CommType::a2a_p2p).exchanges(kBytes, {6});
  const std::int64_t to_other = (kBytes.q + kBytes.kv + kBytes.out + kBytes.statistic) / 2;
  EXPECT_THAT(sent_by(0, exchanges),
              testing::ElementsAre(to_other + 2 * kBytes.kv, to_other + kBytes.kv + 2 * kBytes.dkv_sums));
}

TEST(CommFacts, InnerGroupsOfFourSendAsAnA2aOfFourAndAsARingOfTwo) {
  const std::vector<Exchange> exchanges = facts_of(CommType::a2a_p2p).exchanges(kBytes, {.all = 8, .inner = 4});
  const std::int64_t to_others = (kBytes.q + kBytes.kv + kBytes.out + kBytes.statistic) * 3 / 4;
  EXPECT_THAT(sent_by(6, exchanges), testing::ElementsAre(to_others + kBytes.kv, to_others + kBytes.dkv_sums));
  EXPECT_EQ(std::ranges::find(exchanges.at(1).messages, 6, &Message::from)->to, 2);
}

TEST(CommFacts, ARankSendsByTheSharesOfTheHeads) {
  // Shares of 0, 1, 1 of the two heads, and one kv head on both ranks.
  const RankBytes bytes{.heads = 2, .kv_heads = 1, .q = 20, .kv = 30, .out = 40, .dkv_sums = 60, .statistic = 2};
  const std::vector<Exchange> exchanges = facts_of(CommType::a2a).exchanges(bytes, {3});
  EXPECT_THAT(sent_by(0, exchanges), testing::ElementsAre(2 * (10 + 30), 2 * (20 + 1)));
  EXPECT_THAT(sent_by(1, exchanges), testing::ElementsAre(10 + 30 + 2 * (20 + 1), 20 + 1 + 2 * (10 + 60)));
}

// The shares of the ranks: "first+count of kv heads".
std::vector<std::string> shares(std::int64_t heads, std::int64_t kv_heads, int ranks) {
  std::vector<std::string> out;
  for (int rank = 0; rank < ranks; ++rank) {
    const HeadShare share = head_share(heads, kv_heads, ranks, rank);
    out.push_back(fmt::format("{}+{} of {}", share.first, share.count, fmt::join(share.kv, ",")));
  }
  return out;
}

TEST(HeadShare, KeepsKvHeadsWholeIfEveryRankGetsOne) {
  EXPECT_THAT(shares(8, 4, 2), testing::ElementsAre("0+4 of 0,1", "4+4 of 2,3"));
  EXPECT_THAT(shares(6, 3, 2), testing::ElementsAre("0+2 of 0", "2+4 of 1,2"));
}

TEST(HeadShare, GivesAKvHeadToSeveralRanksIfThereAreFew) {
  EXPECT_THAT(shares(8, 2, 4), testing::ElementsAre("0+2 of 0", "2+2 of 0", "4+2 of 1", "6+2 of 1"));
  EXPECT_THAT(shares(10, 2, 3), testing::ElementsAre("0+3 of 0", "3+3 of 0,0,1", "6+4 of 1"));
  EXPECT_THAT(shares(3, 1, 4), testing::ElementsAre("0+0 of ", "0+1 of 0", "1+1 of 0", "2+1 of 0"));
}

TEST(HeadShare, ReadsTheKvHeadOfEachQueryHead) {
  for (std::int64_t kv_heads = 1; kv_heads <= 8; ++kv_heads) {
    for (std::int64_t group = 1; group <= 8; ++group) {
      for (int ranks = 1; ranks <= 9; ++ranks) {
        std::int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const HeadShare share = head_share(kv_heads * group, kv_heads, ranks, rank);
          EXPECT_EQ(share.first, next);
          next += share.count;
          for (std::int64_t head = 0; head < share.count; ++head) {
            const std::int64_t slot = head * static_cast<std::int64_t>(share.kv.size()) / share.count;
            EXPECT_EQ(share.kv.at(static_cast<std::size_t>(slot)), (share.first + head) / group);
          }
        }
        EXPECT_EQ(next, kv_heads * group);
      }
    }
  }
}

}  // namespace
}  // namespace cp_pool
