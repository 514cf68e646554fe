#include "cp_core/run_case/rank_load.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/mask.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> pairs_of(const Case& c, const char* convention = "dual_chunk") {
  verify::Sharding sharding;
  sharding.rows = verify::parse_convention(convention).value();
  return pairs_by_rank(c, resolve_lengths(c), sharding, c.cp_size);
}

// One causal sequence of 16 tokens, with one head.
Case causal_case(int ranks) {
  Case c = verify::test::small_case();
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 16;
  c.heads = c.kv_heads = 1;
  c.cp_size = ranks;
  c.causal = true;
  return c;
}

// Two documents of one causal pack, each of which a contiguous cut gives to a rank of its own.
Case two_documents() {
  Case c = causal_case(2);
  c.layout = Layout::thd;
  c.pad_between_seqs = false;
  c.batch = 2;
  c.seqlens = {{8, 8}};
  return c;
}

TEST(PairsByRank, OfACausalMaskDependOnTheCut) {
  EXPECT_THAT(pairs_of(causal_case(2)), ElementsAre(68, 68)) << "1 + .. + 4 and 13 + .. + 16; 5 + .. + 12";
  EXPECT_THAT(pairs_of(causal_case(2), "contiguous"), ElementsAre(36, 100));
  EXPECT_THAT(pairs_of(causal_case(2), "striped"), ElementsAre(64, 72));
  EXPECT_THAT(pairs_of(causal_case(4), "contiguous"), ElementsAre(10, 26, 42, 58));
}

TEST(PairsByRank, OfDocumentsDealtOutInOrderAreThoseOfTheDocuments) {
  EXPECT_THAT(pairs_of(two_documents(), "contiguous_pack"), ElementsAre(36, 36));
  Case c = two_documents();
  c.batch = 3;
  c.seqlens = {{8, 4, 4}};
  EXPECT_THAT(pairs_of(c, "contiguous_pack"), ElementsAre(36, 20));
}

TEST(PairsByRank, OfAWindowAndOfPaddingAreTheVisibleOnes) {
  Case c = causal_case(2);
  c.window = {1, 0};
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(15, 16));
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.seqlens = {{13}};
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(15, 10));
}

TEST(PairsByRank, AreSharedByTheRanksThatSplitTheHeads) {
  Case c = causal_case(4);
  c.heads = c.kv_heads = 4;
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(40, 104, 168, 232));
  c.comm = CommType::a2a;
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(136, 136, 136, 136));
  c.comm = CommType::a2a_p2p;
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(72, 72, 200, 200)) << "2 of 4 heads of the rows of both";
}

// Ulysses groups whose ranks are not neighbours.
TEST(PairsByRank, FollowTheUlyssesGroupsOfTheConvention) {
  Case c = causal_case(4);
  c.heads = c.kv_heads = 2;
  for (const char* convention : {"dual_chunk_ulysses:2", "dual_chunk_ulysses:2:outer"}) {
    EXPECT_THAT(pairs_of(c, convention), ElementsAre(68, 68, 68, 68)) << convention;
  }
}

TEST(PairsByRank, OfReplicatedRowsCountOnEveryRankAndOnceInAGroup) {
  Case c = causal_case(2);
  c.seqlen_q = c.seqlen_kv = 20;
  c.replicated = 4;
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(10 + 68, 10 + 132));
  c.comm = CommType::a2a;
  c.heads = c.kv_heads = 2;
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(210, 210));
}

// Where every rank has all queries, it computes them with its own keys.
TEST(PairsByRank, OfAllQueriesAreThoseOfARanksKeys) {
  Case c = causal_case(2);
  c.all_queries = true;
  c.seqlen_q = 2;
  c.seqlen_kv = 8;
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(4 + 4, 4 + 3));
  EXPECT_THAT(pairs_of(c, "paged:3"), ElementsAre(5 + 4, 3 + 3));
  c.replicated = 1;
  c.seqlen_kv = 9;
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(5 + 5, 5 + 4)) << "every rank has the first key";
  c.comm = CommType::a2a;
  c.heads = c.kv_heads = 2;
  EXPECT_THAT(pairs_of(c, "contiguous"), ElementsAre(17, 17));
}

// The sum over all ranks is that of all visible pairs, whatever the cut.
TEST(PairsByRank, AreAllPairsTogether) {
  Case c = verify::test::small_case();
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.cp_size = 4;
  c.batch = 3;
  c.seqlens = {{13, 0, 30}};
  c.seqlens_kv = {{9, 5, 40}};
  c.window = {7, 2};
  const SequenceLengths lengths = resolve_lengths(c);
  std::int64_t all = 0;
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::int64_t i = 0; i < lengths.valid_q[b]; ++i) {
      for (std::int64_t j = 0; j < lengths.valid_kv[b]; ++j) {
        all += visible(make_mask(c), i, j, lengths.valid_q[b], lengths.valid_kv[b]) ? c.heads : 0;
      }
    }
  }
  for (const bool all_queries : {false, true}) {
    c.all_queries = all_queries;
    for (const char* convention : {"dual_chunk", "dual_chunk_pack", "contiguous", "contiguous_pack", "striped"}) {
      const std::vector<std::int64_t> pairs = pairs_of(c, convention);
      EXPECT_EQ(std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0}), all) << convention;
    }
  }
}

constexpr double kGiB = 1U << 30U;

double gib(const Case& c, int ranks) {
  return static_cast<double>(estimated_device_bytes(verify::canonical_problem(c, resolve_lengths(c)), ranks)) / kGiB;
}

Case te_case() {
  Case c;
  c.batch = 2;
  c.seqlen_q = c.seqlen_kv = 4096;
  c.heads = c.kv_heads = 12;
  c.head_dim_qk = c.head_dim_v = 128;
  c.cp_size = 2;
  return c;
}

TEST(MemoryNeed, OfACaseOfTransformerEngineIsSomeGiB) {
  EXPECT_GT(gib(te_case(), 2), 1);
  EXPECT_LT(gib(te_case(), 2), 16);
}

TEST(MemoryNeed, GrowsWithTheProblem) {
  Case longer = te_case();
  longer.seqlen_q = longer.seqlen_kv = 1 << 20;
  EXPECT_GT(gib(longer, 2), 50 * gib(te_case(), 2));
  Case biased = te_case();
  biased.bias = BiasShape::shape_bhss;
  EXPECT_GT(gib(biased, 2), gib(te_case(), 2) + 4);
}

// Measured on an H100: 4.4 GiB on each of two ranks, 2.7 GiB on each of four.
TEST(MemoryNeed, OfARankShrinksWithTheNumberOfRanksButNotAsMuch) {
  const Case c = te_case();
  EXPECT_NEAR(gib(c, 2), 4.44, 1);
  EXPECT_NEAR(gib(c, 4), 2.72, 1);
}

TEST(MemoryNeed, OfAnEmptyProblemIsSmall) {
  Case c = te_case();
  c.layout = Layout::thd;
  c.seqlens = {{0, 0}};
  c.seqlens_kv = {{0, 0}};
  EXPECT_LT(gib(c, 2), 1);
}

}  // namespace
}  // namespace cp_pool
