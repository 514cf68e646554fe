// Tests on small cases with deliberate faults of our own implementation that the right hypothesis is named and not a
// similar one, and how rows are cut.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/testing/diagnosed_on_threads.h"
#include "cp_core/mutation.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/plain_attention.h"

namespace cp_pool::diagnosis {
namespace {

std::string named(const Case& c, Mutant mutant) {
  const ScopedMutant on(mutant);
  const Diagnosis diagnosis = test::diagnosed(c).diagnosis;
  return diagnosis.certainty == Certainty::certain ? diagnosis.id : test::text_of(diagnosis);
}

// 8 tokens over two ranks. Rank 1 has chunks 1 and 2, which are one stretch. Query 2 sees key 1 and keys 6 and 7 of
// rank 0, which are two parts of one step.
Case parts_case() {
  Case c = verify::test::small_case();
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 8;
  c.causal = false;
  c.window = {1, 7};
  return c;
}

TEST(RankPartsTest, ChunksOfWhichOneGoesOnWhereTheOtherEndsAreOneStretch) {
  const auto row = [](std::int64_t position) {
    return verify::LocalRow{.sequence = 0, .position = position, .canonical = position};
  };
  const verify::RowsByRank rows{{row(0), row(1), row(6), row(7)}, {row(2), row(3), row(4), row(5)}};
  const Side side(rows, /*poisoned_padding=*/false);
  EXPECT_TRUE(at::equal(stretch_of_rows(side), index_tensor({0, 0, 1, 1, 0, 0, 0, 0})));
  EXPECT_TRUE(at::equal(side.half, index_tensor({0, 0, 1, 1, 0, 0, 1, 1})));
}

TEST(HypothesesTest, PartsOfARowAreWhatTheRowShows) {
  EXPECT_EQ(named(parts_case(), Mutant::merge_lse_is_max), "merged_lse_is_largest");
  EXPECT_EQ(named(parts_case(), Mutant::merge_lse_not_updated), "lse_without_a_part");
}

TEST(HypothesesTest, TheBackwardTakesPartsAsTheForwardDoes) {
  EXPECT_EQ(named(parts_case(), Mutant::backward_lse_of_part), "backward_of_part");
  EXPECT_EQ(named(parts_case(), Mutant::dk_overwrites), "gradient_share_missing");
}

// The mask probe has no scores that overflow, so nothing is wrong in it.
TEST(HypothesesTest, ScoresThatOverflowAreNamedThoughTheMaskProbeIsRight) {
  EXPECT_EQ(named(verify::test::steep_case(), Mutant::softmax_max_not_subtracted), "max_not_subtracted");
}

// Nothing is left of any row, whether its exponentials ignore the maximum or are relative to one that starts too high.
TEST(HypothesesTest, AMaximumThatStartsTooHighIsNamedWhereAllScoresAreLow) {
  for (const Mutant mutant :
       {Mutant::softmax_max_from_0, Mutant::softmax_max_from_minus_1e4, Mutant::softmax_max_from_minus_5e4}) {
    const ScopedMutant on(mutant);
    const Diagnosis diagnosis = test::diagnosed(verify::test::lowest_case()).diagnosis;
    EXPECT_EQ(diagnosis.certainty, Certainty::likely) << test::text_of(diagnosis);
    std::vector<std::string> ids = diagnosis.others;
    ids.push_back(diagnosis.id);
    EXPECT_THAT(ids, testing::UnorderedElementsAre("max_starts_too_high", "max_not_subtracted"));
  }
}

TEST(HypothesesTest, GradientsOfLowScoresAreSimulatedInEveryDimension) {
  EXPECT_EQ(named(verify::test::low_case(), Mutant::dk_scale_missing), "gradient_scale_missing");
  EXPECT_EQ(named(verify::test::low_case(), Mutant::own_dkv_dropped), "gradient_share_missing");
}

TEST(HypothesesTest, MistakesOfSlicesAndOfASoftcapAreNamed) {
  const Case documents = verify::test::documents_case();
  EXPECT_EQ(named(documents, Mutant::slice_causal_upper_left), "slice_corner");
  EXPECT_EQ(named(documents, Mutant::slice_inverse_causal_lower_right), "slice_corner");
  EXPECT_EQ(named(documents, Mutant::slice_last_key), "slice_off_by_one");
  EXPECT_EQ(named(documents, Mutant::slice_queries_shared), "slice_ignored");
  const Case capped = verify::test::capped_case();
  EXPECT_EQ(named(capped, Mutant::softcap_ignored), "softcap_missing");
  EXPECT_EQ(named(capped, Mutant::softcap_before_scale), "softcap_order");
  EXPECT_EQ(named(capped, Mutant::softcap_after_bias), "softcap_order");
  EXPECT_EQ(named(capped, Mutant::softcap_gradient_missing), "softcap_gradient_missing");
}

TEST(HypothesesTest, KeyValueHeadsThatRanksDoNotDivideAreNamed) {
  Case c = verify::test::small_case();
  c.comm = CommType::a2a;
  c.heads = 6;
  c.kv_heads = 3;
  EXPECT_EQ(named(c, Mutant::kv_heads_padded_apart), "kv_group_size_wrong");
  c.cp_size = c.heads = 4;
  c.kv_heads = 2;
  EXPECT_EQ(named(c, Mutant::kv_heads_split_apart), "kv_heads_split_apart");
  EXPECT_EQ(named(c, Mutant::kv_repeated_over_tokens), "kv_repeated_over_tokens");
}

// The row after the only key is padding, which holds NaN.
TEST(HypothesesTest, PaddingThatHoldsNanIsKnownByMaxLogit) {
  EXPECT_EQ(named(verify::test::one_key_case(), Mutant::max_logit_past_tile), "max_logit_of_hidden_keys");
  EXPECT_NE(named(verify::test::one_key_case(), Mutant::max_logit_from_zero), "max_logit_of_hidden_keys");
}

// In 16 bits the hypothesis is also tried on the mask probe.
TEST(HypothesesTest, MistakesOfTheSinkAreTriedOnTheMaskProbeWhichHasNone) {
  Case c = verify::test::small_case();
  c.dtype = DType::bf16;
  c.softmax = SoftmaxType::learnable;
  c.heads = 8;
  c.input_scale = 0.1;  // so that some sinks are larger than all scores
  c.max_logit = true;
  EXPECT_EQ(named(c, Mutant::max_logit_of_sink), "max_logit_of_sink");
}

TEST(HypothesesTest, MistakesWithReplicatedTokensAreNamed) {
  Case c = verify::test::small_case();
  c.cp_size = 3;
  c.seqlen_q = c.seqlen_kv = 29;
  c.replicated = 5;
  using cp_pool::test::PlainFault;
  for (const auto& [fault, id] : {std::pair{PlainFault::replicated_keys_of_every_rank, "replicated_keys_repeated"},
                                  {PlainFault::replicated_loss_of_every_rank, "replicated_queries_repeated"},
                                  {PlainFault::replicated_gradients_of_a_rank, "replicated_share_missing"},
                                  {PlainFault::diagonal_top_left, "diagonal_top_left"}}) {
    if (fault == PlainFault::diagonal_top_left) {
      c.seqlen_kv = 17;
      c.causal = true;
    }
    const Diagnosis diagnosis = test::diagnosed_on_threads(c, [fault = fault] {
                                  return std::make_unique<cp_pool::test::PlainAttention>(verify::Sharding{}, fault);
                                }).diagnosis;
    EXPECT_EQ(diagnosis.certainty, Certainty::certain) << test::text_of(diagnosis);
    EXPECT_EQ(diagnosis.id, id) << test::text_of(diagnosis);
  }
}

}  // namespace
}  // namespace cp_pool::diagnosis
