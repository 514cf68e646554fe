#include "cases/lengths.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::Each;
using testing::ElementsAre;

Case thd_case(bool padded = false) {
  Case c;
  c.pad_between_seqs = padded;
  c.layout = Layout::thd;
  c.seqlen_q = c.seqlen_kv = 4096;
  c.heads = c.kv_heads = 4;
  c.head_dim_qk = c.head_dim_v = 16;
  return c;
}

TEST(Lengths, BshdAndSbhdAreFull) {
  for (const Layout layout : {Layout::bshd, Layout::sbhd}) {
    Case c = thd_case();
    c.layout = layout;
    c.batch = 3;
    c.seqlen_kv = 128;
    const SequenceLengths lengths = resolve_lengths(c);
    EXPECT_THAT(lengths.valid_q, ElementsAre(4096, 4096, 4096));
    EXPECT_EQ(lengths.padded_q, lengths.valid_q);
    EXPECT_THAT(lengths.valid_kv, ElementsAre(128, 128, 128));
    EXPECT_EQ(lengths.padded_kv, lengths.valid_kv);
  }
}

TEST(Lengths, ExplicitLengthsArePaddedToTwiceTheRanks) {
  Case c = thd_case(/*padded=*/true);
  c.cp_size = 4;
  c.batch = 4;
  c.seqlens = {0, 1, 8, 9};
  const SequenceLengths lengths = resolve_lengths(c);
  EXPECT_THAT(lengths.valid_q, ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(lengths.padded_q, ElementsAre(0, 8, 8, 16));
  EXPECT_EQ(lengths.valid_kv, lengths.valid_q);
  EXPECT_EQ(lengths.padded_kv, lengths.padded_q);
}

TEST(Lengths, WhatIsNotReplicatedIsPaddedToTwiceTheRanks) {
  Case c = thd_case(/*padded=*/true);
  c.cp_size = 4;
  c.batch = 5;
  c.replicated = 5;
  c.seqlens = {0, 3, 5, 6, 21};
  const SequenceLengths lengths = resolve_lengths(c);
  EXPECT_EQ(lengths.replicated_q, 5);
  EXPECT_EQ(lengths.replicated_kv, 5);
  EXPECT_THAT(lengths.valid_q, ElementsAre(0, 3, 5, 6, 21));
  EXPECT_THAT(lengths.padded_q, ElementsAre(0, 3, 5, 13, 21));
}

TEST(Lengths, QueriesThatEveryRankHasAreNotPadded) {
  Case c = thd_case(/*padded=*/true);
  c.cp_size = 4;
  c.batch = 3;
  c.all_queries = true;
  c.replicated = 1;
  c.seqlens = {0, 3, 21};
  c.seqlens_kv = {0, 3, 21};
  const SequenceLengths lengths = resolve_lengths(c);
  EXPECT_EQ(lengths.replicated_kv, 1);
  EXPECT_EQ(lengths.padded_q, lengths.valid_q);
  EXPECT_THAT(lengths.padded_kv, ElementsAre(0, 9, 25));
  EXPECT_THAT(without_replication(lengths, 4).padded_q, ElementsAre(0, 8, 24));
}

// Without padding the lengths of keys are rounded up, and those of queries stay the same as those of keys.
TEST(Lengths, OfQueriesThatEveryRankHasAreThoseOfKeys) {
  Case c = thd_case();
  c.all_queries = true;
  c.batch = 50;
  const SequenceLengths lengths = resolve_lengths(c);
  EXPECT_EQ(lengths.valid_q, lengths.valid_kv);
  EXPECT_EQ(lengths.valid_q, lengths.padded_kv);
}

TEST(Lengths, WithoutReplicationAreThoseOfWholeSequences) {
  Case c = thd_case(/*padded=*/true);
  c.cp_size = 4;
  c.seqlens = {3, 21};
  EXPECT_EQ(without_replication(resolve_lengths(c), 4), resolve_lengths(c));
  const SequenceLengths whole = resolve_lengths(c);
  c.replicated = 5;
  EXPECT_EQ(without_replication(resolve_lengths(c), 4), whole);
}

TEST(Lengths, WithoutPaddingDrawnLengthsEndWithWholeChunksOfWhatIsNotReplicated) {
  Case c = thd_case();
  c.cp_size = 4;
  c.batch = 50;
  c.replicated = 21;
  c.seqlen_q = c.seqlen_kv = 21 + 16;
  const SequenceLengths lengths = resolve_lengths(c);
  EXPECT_EQ(lengths.valid_q, lengths.padded_q);
  EXPECT_THAT(lengths.padded_q, testing::Contains(testing::Lt(21)));
  EXPECT_THAT(lengths.padded_q, Each(testing::AnyOf(testing::Le(21), 29, 37)));
}

TEST(Lengths, ExplicitKvLengthsStandApart) {
  Case c = thd_case(/*padded=*/true);
  c.seqlens_kv = {3, 5};
  const SequenceLengths lengths = resolve_lengths(c);
  EXPECT_THAT(lengths.valid_kv, ElementsAre(3, 5));
  EXPECT_THAT(lengths.padded_kv, ElementsAre(4, 8));
}

// The drawn lengths belong to the definition of a case: results of different runs are comparable only if they never
// change.
TEST(Lengths, DrawsAreTheSameOnEveryMachine) {
  Case c = thd_case(/*padded=*/true);
  const SequenceLengths lengths = resolve_lengths(c);
  EXPECT_THAT(lengths.valid_q, ElementsAre(1245, 1759));
  EXPECT_EQ(lengths.valid_kv, lengths.valid_q);
  c.seed = 1235;
  EXPECT_NE(resolve_lengths(c).valid_q, lengths.valid_q);
}

TEST(Lengths, WithoutPaddingTheDrawIsRoundedUp) {
  const SequenceLengths packed_lengths = resolve_lengths(thd_case());
  EXPECT_EQ(packed_lengths.valid_q, resolve_lengths(thd_case(/*padded=*/true)).padded_q);
  EXPECT_EQ(packed_lengths.padded_q, packed_lengths.valid_q);
  EXPECT_EQ(packed_lengths.padded_kv, packed_lengths.valid_kv);
}

TEST(Lengths, DrawsDependOnTheSeedAlone) {
  Case c = thd_case(/*padded=*/true);
  Case other = c;
  other.cp_size = 8;
  other.comm = CommType::a2a;
  other.model = "other";
  other.heads = 64;
  EXPECT_EQ(resolve_lengths(other).valid_q, resolve_lengths(c).valid_q);
}

TEST(Lengths, UnequalKvLengthsAreDrawnApart) {
  Case c = thd_case(/*padded=*/true);
  c.batch = 64;
  const SequenceLengths equal = resolve_lengths(c);
  c.seqlen_kv = 128;
  const SequenceLengths lengths = resolve_lengths(c);
  EXPECT_EQ(lengths.valid_q, equal.valid_q);
  EXPECT_THAT(lengths.valid_kv, Each(testing::Le(128)));
  EXPECT_GT(std::set<std::int64_t>(lengths.valid_kv.begin(), lengths.valid_kv.end()).size(), 10U);
}

TEST(Lengths, DrawsReachBothEndsEvenly) {
  Case c = thd_case(/*padded=*/true);
  c.seqlen_q = c.seqlen_kv = 9;
  c.batch = 4000;
  const SequenceLengths lengths = resolve_lengths(c);
  const std::map<std::int64_t, double> drawn_tenths{{1, 3}, {3, 2}, {5, 2}, {7, 2}, {9, 1}};  // 1 is made of 0, too
  for (const auto& [length, tenths] : drawn_tenths) {
    EXPECT_NEAR(static_cast<double>(std::ranges::count(lengths.valid_q, length)), 400 * tenths, 60 * tenths) << length;
  }
  EXPECT_THAT(lengths.valid_q, Each(testing::ResultOf([](auto length) { return length % 2; }, 1)));
}

// A fault that shows on padding alone would otherwise depend on the luck of the draw.
TEST(Lengths, EveryDrawnSequenceIsPadded) {
  Case c = thd_case(/*padded=*/true);
  c.batch = 50;
  c.seqlen_q = 41;
  c.seqlen_kv = 64;
  for (const int cp_size : {1, 2, 3, 4, 5, 6, 7, 8}) {
    for (const int replicated : {0, 12, 13}) {
      c.cp_size = cp_size;
      c.replicated = replicated;
      const SequenceLengths lengths = resolve_lengths(c);
      for (std::size_t b = 0; b < lengths.padded_q.size(); ++b) {
        if (lengths.valid_q[b] > replicated) {
          EXPECT_LT(lengths.valid_q[b], lengths.padded_q[b]);
        }
        if (lengths.valid_kv[b] > replicated) {
          EXPECT_LT(lengths.valid_kv[b], lengths.padded_kv[b]);
        }
        EXPECT_LE(lengths.valid_q[b], c.seqlen_q);
        EXPECT_LE(lengths.valid_kv[b], c.seqlen_kv);
      }
    }
  }
}

TEST(Lengths, PaddedLengthsDivideByTwiceTheRanks) {
  Case c = thd_case();
  c.batch = 100;
  for (const int cp_size : {1, 2, 4, 8}) {
    c.cp_size = cp_size;
    for (const bool pad : {false, true}) {
      c.pad_between_seqs = pad;
      const SequenceLengths lengths = resolve_lengths(c);
      for (std::size_t b = 0; b < lengths.padded_q.size(); ++b) {
        EXPECT_EQ(lengths.padded_q[b] % (std::int64_t{2} * cp_size), 0);
        EXPECT_LE(lengths.valid_q[b], lengths.padded_q[b]);
        EXPECT_LT(lengths.padded_q[b] - lengths.valid_q[b], 2 * cp_size);
      }
    }
  }
}

}  // namespace
}  // namespace cp_pool
