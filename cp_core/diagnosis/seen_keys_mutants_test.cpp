// Tests that the observed pairs are those that the definition of each deliberate fault of our own implementation
// implies.
#include <functional>
#include <string>

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/dual_chunk.h"
#include "cp_core/diagnosis/testing/seen_on_threads.h"
#include "cp_core/mutation.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::int64_t kTokens = 16;

// One sequence of 16 tokens over two ranks: rank 0 has chunks 0 and 3 (keys 0..3, 12..15), rank 1 has keys 4..11.
Case one_sequence() {
  Case c = verify::test::small_case();
  c.batch = 1;
  return c;
}

Case causal_sequence() {
  Case c = one_sequence();
  c.causal = true;
  return c;
}

Case forward_only(Case c) {
  c.training = false;
  return c;
}

SeenKeys seen_with(Mutant mutant, const Case& c) {
  const ScopedMutant on(mutant);
  return test::seen_by_own(c);
}

using TimesOf = std::function<double(std::int64_t i, std::int64_t j)>;

// Expects that the queries of one_sequence saw the keys this often.
void expect_times(const SeenKeys& seen, const TimesOf& times) {
  ASSERT_EQ(seen.why_not, "");
  at::Tensor expected = at::zeros({kTokens, kTokens}, at::kDouble);
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t j = 0; j < kTokens; ++j) expected.select(0, i).select(0, j).fill_(times(i, j));
  }
  EXPECT_TRUE(at::equal(seen.times, expected)) << seen.times << "\n" << test::text_of(seen);
}

std::vector<std::string> texts_of(const std::vector<PairRectangle>& rectangles) {
  std::vector<std::string> texts;
  for (const PairRectangle& rectangle : rectangles) texts.push_back(rectangle.text);
  return texts;
}

bool says(const SeenKeys& seen, const std::string& part) {
  return test::text_of(seen).find(part) != std::string::npos;
}

int owner_of(std::int64_t token) {
  return owner_of_chunk(2, static_cast<int>(token / 4));
}

TEST(SeenKeysOfMutants, NothingIsWrongWithoutOne) {
  const SeenKeys seen = seen_with(Mutant::none, causal_sequence());
  expect_times(seen, [](auto i, auto j) { return j <= i ? 1 : 0; });
  EXPECT_FALSE(seen.wrong || seen.heads_differ) << test::text_of(seen);
  EXPECT_TRUE(seen.whole_numbers);
  EXPECT_FALSE(seen.picture);
  EXPECT_THAT(seen.notes, IsEmpty());
}

TEST(SeenKeysOfMutants, WindowLeftNarrow) {
  Case c = forward_only(causal_sequence());
  c.window = {3, 0};
  const SeenKeys seen = seen_with(Mutant::window_left_narrow, c);
  expect_times(seen, [](auto i, auto j) { return j <= i && i - j <= 2 ? 1 : 0; });
  EXPECT_EQ(seen.pairs.missing_pairs, 13);
  EXPECT_EQ(seen.pairs.excess_pairs, 0);
  EXPECT_EQ(seen.pairs.missing.front().text, "query 3 (rank 0) did not see key 0 (chunk 0, rank 0)");
  EXPECT_THAT(seen.notes, IsEmpty());
}

TEST(SeenKeysOfMutants, CausalIgnored) {
  const SeenKeys seen = seen_with(Mutant::causal_ignored, forward_only(causal_sequence()));
  expect_times(seen, [](auto, auto) { return 1; });
  EXPECT_EQ(seen.pairs.missing_pairs, 0);
  EXPECT_EQ(seen.pairs.excess_pairs, 120);
  EXPECT_THAT(texts_of(seen.pairs.excess),
              ElementsAre("queries 0..7 (ranks 0, 1) saw keys 8..15 (chunks 2, 3, ranks 0, 1)",
                          "queries 0..3 (rank 0) saw keys 4..7 (chunk 1, rank 1)",
                          "queries 8..11 (rank 1) saw keys 12..15 (chunk 3, rank 0)",
                          "queries 0..1 (rank 0) saw keys 2..3 (chunk 0, rank 0)",
                          "queries 4..5 (rank 1) saw keys 6..7 (chunk 1, rank 1)",
                          "queries 8..9 (rank 1) saw keys 10..11 (chunk 2, rank 1)",
                          "queries 12..13 (rank 0) saw keys 14..15 (chunk 3, rank 0)",
                          "query 0 (rank 0) saw key 1 (chunk 0, rank 0)"));
  ASSERT_TRUE(seen.picture);
  EXPECT_THAT(seen.picture->rows, Contains("........++++++++"));
  EXPECT_THAT(seen.picture->q_ranks, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
}

TEST(SeenKeysOfMutants, MaskOffset) {
  const SeenKeys seen = seen_with(Mutant::mask_offset, forward_only(causal_sequence()));
  expect_times(seen, [](auto i, auto j) { return j <= i + 1 ? 1 : 0; });
  EXPECT_THAT(seen.notes, IsEmpty());
}

TEST(SeenKeysOfMutants, ChunkIgnored) {
  Case c = forward_only(causal_sequence());
  c.chunk = 8;
  const SeenKeys seen = seen_with(Mutant::chunk_ignored, c);
  expect_times(seen, [](auto i, auto j) { return j <= i ? 1 : 0; });
  EXPECT_THAT(texts_of(seen.pairs.excess),
              ElementsAre("queries 8..15 (ranks 0, 1) saw keys 0..7 (chunks 0, 1, ranks 0, 1)"));
}

// Two sequences of 8 tokens.
TEST(SeenKeysOfMutants, PackedSequencesSeen) {
  Case c = forward_only(one_sequence());
  c.layout = Layout::thd;
  c.batch = 2;
  c.seqlens = {{8, 8}};
  const SeenKeys seen = seen_with(Mutant::packed_sequences_seen, c);
  EXPECT_EQ(seen.pairs.excess_pairs, 128);
  EXPECT_THAT(
      texts_of(seen.pairs.excess),
      ElementsAre("queries 0..7 of sequence 0 (ranks 0, 1) saw keys 0..7 of sequence 1 (chunks 0..3, ranks 0, 1)",
                  "queries 0..7 of sequence 1 (ranks 0, 1) saw keys 0..7 of sequence 0 (chunks 0..3, ranks 0, 1)"));
  ASSERT_TRUE(seen.picture);
  EXPECT_THAT(seen.picture->q_borders, ElementsAre(8));
  EXPECT_EQ(seen.picture->rows.front(), "........++++++++");
  EXPECT_EQ(seen.picture->rows.back(), "++++++++........");
}

// 13 tokens, padded to 16.
TEST(SeenKeysOfMutants, PaddingKeysSeen) {
  Case c = forward_only(one_sequence());
  c.layout = Layout::thd;
  c.seqlens = {{13}};
  c.pad_between_seqs = true;
  const SeenKeys seen = seen_with(Mutant::padding_keys_seen, c);
  expect_times(seen, [](auto i, auto) { return i < 13 ? 1 : 0; });
  EXPECT_THAT(texts_of(seen.pairs.excess),
              ElementsAre("queries 0..12 (ranks 0, 1) saw 3 padding keys 13..15 (chunk 3, rank 0)"));
}

TEST(SeenKeysOfMutants, PaddingQueriesComputed) {
  Case c = forward_only(one_sequence());
  c.layout = Layout::thd;
  c.seqlens = {{13}};
  c.pad_between_seqs = true;
  const SeenKeys seen = seen_with(Mutant::padding_queries_computed, c);
  expect_times(seen, [](auto, auto j) { return j < 13 ? 1 : 0; });
  EXPECT_THAT(texts_of(seen.pairs.excess),
              ElementsAre("3 padding queries 13..15 (rank 0) saw keys 0..12 (chunks 0..3, ranks 0, 1)"));
}

// A rank takes the keys of the other rank for its own, so they count as the keys at the same index of its own.
TEST(SeenKeysOfMutants, RingOrder) {
  const auto taken_for = [](std::int64_t key) { return key ^ 4; };
  const SeenKeys seen = seen_with(Mutant::ring_order, forward_only(causal_sequence()));
  // It also takes its own keys for those of the other rank, which is the rank before the owner.
  expect_times(seen, [&](auto i, auto j) { return taken_for(j) <= i ? 1 : 0; });
}

TEST(SeenKeysOfMutants, AllGatherStepRepeated) {
  Case c = forward_only(one_sequence());
  c.comm = CommType::all_gather;
  const SeenKeys seen = seen_with(Mutant::all_gather_step_repeated, c);
  // A rank's own keys have a step of their own, so they are seen once.
  expect_times(seen, [](auto i, auto j) {
    if (owner_of(i) == owner_of(j)) return 1;
    return i < 8 ? 2 : 0;
  });
  EXPECT_THAT(texts_of(seen.pairs.missing),
              ElementsAre("queries 12..15 (rank 0) did not see keys 4..11 (chunks 1, 2, rank 1)",
                          "queries 8..11 (rank 1) did not see keys 0..3 (chunk 0, rank 0)",
                          "queries 8..11 (rank 1) did not see keys 12..15 (chunk 3, rank 0)"));
  EXPECT_THAT(texts_of(seen.pairs.excess),
              ElementsAre("queries 0..3 (rank 0) saw keys 4..11 (chunks 1, 2, rank 1) twice",
                          "queries 4..7 (rank 1) saw keys 0..3 (chunk 0, rank 0) twice",
                          "queries 4..7 (rank 1) saw keys 12..15 (chunk 3, rank 0) twice"));
  EXPECT_EQ(seen.pairs.excess.front().times, 2);
}

// The causal mask makes parts of unequal size, so that equal weights are wrong.
TEST(SeenKeysOfMutants, MergeWeightsEqual) {
  const SeenKeys seen = seen_with(Mutant::merge_weights_equal, forward_only(causal_sequence()));
  EXPECT_TRUE(seen.wrong);
  EXPECT_FALSE(seen.whole_numbers);
  EXPECT_EQ(seen.pairs.missing_pairs + seen.pairs.excess_pairs, 0);
  EXPECT_TRUE(says(seen, "the weights of keys are not whole numbers: parts were merged with wrong weights"));
  ASSERT_TRUE(seen.picture);
  EXPECT_THAT(seen.picture->rows, Contains(HasSubstr("?")));
}

TEST(SeenKeysOfMutants, MergedLse) {
  const SeenKeys stale = seen_with(Mutant::merge_lse_not_updated, forward_only(causal_sequence()));
  EXPECT_FALSE(stale.wrong);
  EXPECT_TRUE(says(stale, "the first of which is query 4 (rank 1), the lse is not the logarithm"));
}

TEST(SeenKeysOfMutants, FaultsOfTheSoftmaxVanish) {
  Case c = causal_sequence();
  c.input_scale = 10;
  const SeenKeys seen = seen_with(Mutant::softmax_max_not_subtracted, c);
  EXPECT_FALSE(seen.wrong || seen.heads_differ);
  EXPECT_THAT(seen.notes, IsEmpty());
}

TEST(SeenKeysOfMutants, ValuesThatDidNotCome) {
  const SeenKeys seen = seen_with(Mutant::all_gather_wait_skipped, [] {
    Case c = forward_only(one_sequence());
    c.comm = CommType::all_gather;
    return c;
  }());
  expect_times(seen, [](auto i, auto j) { return owner_of(i) == owner_of(j) ? 1 : 0; });
}

TEST(SeenKeysOfMutants, KInThePlaceOfV) {
  const SeenKeys seen = seen_with(Mutant::kv_places_swapped, forward_only(one_sequence()));
  EXPECT_FALSE(seen.whole_numbers);
  EXPECT_THAT(seen.notes, ElementsAre(HasSubstr("V was read in the wrong place")));
}

TEST(SeenKeysOfMutants, WhatDoesNotRepeatIsUnknown) {
  const SeenKeys forward = seen_with(Mutant::repeat_drifts, causal_sequence());
  EXPECT_THAT(forward.why_not, HasSubstr("different bits when it was repeated"));
}

}  // namespace
}  // namespace cp_pool::diagnosis
