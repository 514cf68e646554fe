#include "cases/comm_facts.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_names.h"

namespace cp_pool {
namespace {

constexpr int kMostRanks = 64;
constexpr RankBytes kBytes{.q = 640, .kv = 1280, .out = 320, .dkv_sums = 2560, .statistic = 64};

// fn(type, what it says, a size that it takes)
template <typename Fn>
void for_each_type_and_size(Fn fn) {
  for (const CommType type : kValues<CommType>) {
    for (int size = 1; size <= kMostRanks; ++size) {
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
    for (int size = 1; size <= kMostRanks; ++size) refused += facts.takes_size(size) ? 0 : 1;
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
