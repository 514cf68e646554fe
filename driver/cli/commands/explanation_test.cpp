#include "driver/cli/commands/explanation.h"

#include <gmock/gmock.h>

#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using namespace ::testing;

TEST(DrawMask, ShowsTheDiagonalAndTheOwners) {
  Case c = test::example_case();
  c.causal = true;
  EXPECT_EQ(draw_mask(c, test::one_sequence(8, 8), 0),
            "         00111100\n"
            "       0 #....... 0\n"
            "       1 ##...... 0\n"
            "       2 ###..... 1\n"
            "       3 ####.... 1\n"
            "       4 #####... 1\n"
            "       5 ######.. 1\n"
            "       6 #######. 0\n"
            "       7 ######## 0\n");
}

TEST(DrawMask, HasAColumnForEachChunkOfTheMostRanks) {
  Case c = test::example_case();
  c.causal = true;
  c.cp_size = 64;
  const std::string text = draw_mask(c, test::one_sequence(128, 128), 0);
  const std::string letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@&";
  EXPECT_THAT(text, StartsWith("         " + letters + std::string(letters.rbegin(), letters.rend()) + "\n"));
  EXPECT_THAT(text, HasSubstr(" &\n"));
}

TEST(DrawMask, DrawsBlocksOfALongSequenceAndLeavesPaddingBlank) {
  Case c = test::example_case();
  c.window = {32, 32};
  EXPECT_EQ(draw_mask(c, test::one_sequence(96, 128), 0).substr(0, 86),
            "         00000000111111111111111100000000\n"
            "       0 ########+...............         0\n");
  EXPECT_THAT(draw_mask(c, test::one_sequence(96, 128), 0),
              HasSubstr("\n     124                                  0\n"));
}

TEST(DrawMask, CutsAtChunkBorders) {
  Case c = test::example_case();
  c.chunk = 4;
  EXPECT_THAT(draw_mask(c, test::one_sequence(8, 8), 0), HasSubstr("       3 ####.... 1\n       4 ....#### 1\n"));
}

TEST(DrawMask, ShowsReplicatedTokensAsOneBlockOfEveryRank) {
  Case c = test::example_case();
  c.causal = true;
  SequenceLengths lengths = test::one_sequence(7, 7);
  lengths.replicated_q = lengths.replicated_kv = 3;
  EXPECT_EQ(draw_mask(c, lengths, 0),
            "         *0110\n"
            "       0 +.... *\n"
            "       3 ##... 0\n"
            "       4 ###.. 1\n"
            "       5 ####. 1\n"
            "       6 ##### 0\n");
}

TEST(ExplainCase, SaysWhatIsReplicated) {
  Case c = test::example_case();
  c.replicated = 8;
  c.seqlen_q = c.seqlen_kv = 136;
  const std::string text = explain_case("the/id", c);
  for (const char* part :
       {"replicated: the first 8 tokens of each sequence are on every rank\n",
        "rank 1: q [0, 8) q [40, 72) q [72, 104) kv [0, 8) kv [40, 72) kv [72, 104)\n", "a character for 4 x 4",
        "owns them (*: the replicated tokens, as one)\n", "rows that ranks gather to compute whole sequences"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ExplainCase, SaysThatEveryRankHasAllQueries) {
  Case c = test::example_case();
  c.all_queries = true;
  c.seqlen_q = 3;
  const std::string text = explain_case("the/id", c);
  for (const char* part : {"all_queries: every rank has all queries, and only keys are cut\n",
                           "rank 1: q [0, 3) kv [32, 64) kv [64, 96)\n", "       0 ####"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ExplainCase, SaysWhatTheCaseIsAndWhatItCosts) {
  Case c = test::example_case();
  c.causal = true;
  const std::string text = explain_case("the/id", c);
  for (const char* part : {"the/id\n", "p2p of 2 ranks", "mask: causal\n", "    0: q 128 of 128, k and v 128 of 128\n",
                           "rank 0: q [0, 32) q [96, 128) kv [0, 32) kv [96, 128)\n",
                           "each rank sends 64.0 KiB forward, 128.0 KiB backward\n",
                           "rank 1: 6 full, 4 banded, 6 empty tiles; 8256 visible pairs x 4 heads"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, ::testing::EndsWith("  largest share: rank 0 computes 1.00 x the mean of the ranks\n"));
}

TEST(ExplainCase, OfAnAdapterSaysHowMuchEachRankComputesAndNothingOfOurOwnCut) {
  Case c = test::example_case();
  c.causal = true;
  const std::string text = explain_case("the/id", c, "mine.py", {.pairs = {10, 30}});
  EXPECT_THAT(text, ::testing::AllOf(StartsWith("the/id\n"), HasSubstr("mask: causal\n"), HasSubstr("       0 +....")));
  EXPECT_THAT(text, ::testing::EndsWith("compute: what the rows and heads of mine.py give to each rank\n"
                                        "  rank 0: 10 visible pairs over its heads\n"
                                        "  rank 1: 30 visible pairs over its heads\n"
                                        "  largest share: rank 1 computes 1.50 x the mean of the ranks\n"));
  for (const char* own : {"who owns", "sends", "tiles", "         0"}) EXPECT_THAT(text, Not(HasSubstr(own)));
}

TEST(ExplainCase, OfAnAdapterThatSkipsItSaysWhy) {
  EXPECT_THAT(explain_case("the/id", test::example_case(), "mine.py", {.skip = "no bias"}),
              ::testing::EndsWith("mine.py skips this case: no bias\n"));
}

TEST(ExplainCase, SaysWhatMakesScoresUnusual) {
  Case c = test::example_case();
  EXPECT_THAT(explain_case("the/id", c), Not(HasSubstr("input_scale")));
  EXPECT_THAT(explain_case("the/id", c), Not(HasSubstr("score_offset")));
  c.input_scale = 10;
  c.score_offset = -100;
  EXPECT_THAT(explain_case("the/id", c),
              HasSubstr("  input_scale 10: of q and k\n  score_offset -100: is added to every score\n"));
}

TEST(ExplainCase, SaysWhichRanksAreInWhichGroup) {
  Case c = test::example_case();
  c.seed = 7;
  EXPECT_THAT(explain_case("the/id", c), Not(HasSubstr("group")));
  c.group = 2;
  EXPECT_THAT(explain_case("the/id", c), HasSubstr("  2 groups at once, in a world of 4; below, ranks of the first:\n"
                                                   "    group 0, seed 7: world ranks 0 2\n"
                                                   "    group 1, seed 8: world ranks 1 3\n"));
  c.group_ranks = {{0, 1}, {2, 3}};
  EXPECT_THAT(explain_case("the/id", c), HasSubstr("    group 1, seed 8: world ranks 2 3\n"));
  c.layout = Layout::thd;
  c.batch = 1;
  c.seqlens = {8};
  c.group_ranks = {{0, 1}, {2}};
  c.group_lengths = {{8}, {4, 2}};
  EXPECT_THAT(explain_case("the/id", c), HasSubstr("    group 1, seed 8: world ranks 2, lengths 4 2\n"));
}

TEST(ExplainCase, SaysHowManyRanksExchangeHeads) {
  Case c = test::example_case();
  c.comm = CommType::a2a_p2p;
  c.cp_size = 8;
  EXPECT_THAT(explain_case("the/id", c), Not(HasSubstr("inner: ")));
  c.inner = 4;
  EXPECT_THAT(explain_case("the/id", c), HasSubstr("  inner: 4 ranks in a row exchange tokens for heads\n"));
}

TEST(ExplainCase, SaysWhereGradientsCountForMoreThanTravels) {
  Case c = test::example_case();
  c.backend = Backend::cudnn;
  const std::string says = "128.0 KiB backward (at most: dk and dv count as fp32)\n";
  EXPECT_THAT(explain_case("the/id", c), HasSubstr(says));
  c.comm = CommType::a2a;
  EXPECT_THAT(explain_case("the/id", c), Not(HasSubstr("at most")));
}

}  // namespace
}  // namespace cp_pool
