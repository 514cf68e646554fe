// Tests what is observed of the faults of an implementation that is not ours.
#include "cp_core/diagnosis/seen_keys.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/diagnosis/testing/seen_on_threads.h"
#include "cp_core/diagnosis/testing/toy_attention.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using test::ToyAttention;
using test::ToySight;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr std::int64_t kToyTokens = 16;

// One sequence of 16 tokens, contiguous over two ranks.
Case toy_sequence() {
  Case c = verify::test::small_case();
  c.batch = 1;
  return c;
}

ToySight sees_all() {
  return {.times = {at::ones({kToyTokens, kToyTokens}, at::kDouble)}};
}

// Returns a matrix of 1 that has `value` for queries q_first..q_last and keys kv_first..kv_last.
at::Tensor pairs_with(std::int64_t q_first, std::int64_t q_last, std::int64_t kv_first, std::int64_t kv_last,
                      double value) {
  at::Tensor pairs = at::ones({kToyTokens, kToyTokens}, at::kDouble);
  pairs.narrow(0, q_first, q_last - q_first + 1).narrow(1, kv_first, kv_last - kv_first + 1).fill_(value);
  return pairs;
}

std::vector<SeenKeys> seen_by_all(const Case& c, const ToySight& sight, const Settings& settings = {},
                                  const std::vector<Check>& checks = {}) {
  verify::Sharding sharding;
  sharding.rows = verify::parse_convention("contiguous").value();
  return test::seen_on_threads(c, [&] { return std::make_unique<ToyAttention>(sharding, sight); }, settings, checks);
}

SeenKeys seen_by(const Case& c, const ToySight& sight) {
  return seen_by_all(c, sight).front();
}

TEST(SeenKeys, AllRanksKnowThePairsAndRank0HasTheWords) {
  ToySight sight;
  sight.times = {pairs_with(8, 15, 2, 3, 0)};
  const std::vector<SeenKeys> seen = seen_by_all(toy_sequence(), sight);
  for (const SeenKeys& one : seen) {
    EXPECT_TRUE(one.wrong);
    EXPECT_TRUE(at::equal(one.times, sight.times.front()));
    EXPECT_THAT(one.q_lengths, ElementsAre(kToyTokens));
  }
  ASSERT_EQ(seen[0].pairs.missing.size(), 1);
  EXPECT_EQ(seen[0].pairs.missing.front().text, "queries 8..15 (rank 1) did not see keys 2..3 (rank 0)");
  EXPECT_THAT(seen[1].pairs.missing, IsEmpty());
  EXPECT_THAT(seen[1].notes, IsEmpty());
}

TEST(SeenKeys, HeadsThatSawOtherKeysAreNamed) {
  Case c = toy_sequence();
  c.heads = c.kv_heads = 4;
  c.training = false;
  ToySight sight = sees_all();
  sight.times = {sight.times.front(), sight.times.front(), pairs_with(0, 3, 8, 15, 0), pairs_with(0, 3, 8, 15, 0)};
  const SeenKeys seen = seen_by(c, sight);
  EXPECT_TRUE(seen.wrong);
  EXPECT_TRUE(seen.heads_differ);
  ASSERT_EQ(seen.pairs.missing.size(), 1);
  EXPECT_EQ(seen.pairs.missing.front().text, "heads 2, 3 of 4: queries 0..3 (rank 0) did not see keys 8..15 (rank 1)");
  EXPECT_THAT(seen.notes, Contains("the other heads saw other keys"));
}

TEST(SeenKeys, WeightsOfAWrongMergeAreNoKeys) {
  Case c = toy_sequence();
  c.training = false;
  ToySight sight = sees_all();
  sight.in_out = pairs_with(0, 15, 0, 7, 0.5);
  const SeenKeys seen = seen_by(c, sight);
  EXPECT_TRUE(seen.wrong);
  EXPECT_FALSE(seen.whole_numbers);
  EXPECT_EQ(seen.pairs.missing_pairs + seen.pairs.excess_pairs, 0);
  EXPECT_THAT(seen.notes, Contains(StartsWith("for 16 of 16 queries, the first of which is query 0 (rank 0), the "
                                              "weights of keys are not whole numbers")));
}

// The lse of 12 keys in base 2 happens to be close to the natural lse of 36 keys.
TEST(SeenKeys, AnLseInAnotherBaseIsNotTakenForKeysSeenSeveralTimes) {
  Case c = toy_sequence();
  c.training = false;
  ToySight sight;
  sight.times = {pairs_with(0, 7, 0, 3, 0)};
  sight.lse_factor = 1 / std::log(2.0);
  const SeenKeys seen = seen_by(c, sight);
  EXPECT_TRUE(at::equal(seen.times, sight.times.front())) << seen.times;
  EXPECT_THAT(seen.notes,
              Contains(AllOf(StartsWith("for 16 of 16 queries"), HasSubstr("the lse is not the logarithm"))));
}

// Seeing all keys twice and an lse that is too large by log 2 give the same results.
TEST(SeenKeys, ThatAllKeysAreSeenTwiceIsNotBelievedOfLseAlone) {
  Case c = toy_sequence();
  c.training = false;
  ToySight sight;
  sight.times = {at::ones({kToyTokens, kToyTokens}, at::kDouble).mul(2)};
  const SeenKeys seen = seen_by(c, sight);
  EXPECT_FALSE(seen.wrong);
  EXPECT_THAT(seen.notes, Contains(HasSubstr("the lse is not the logarithm")));
}

TEST(SeenKeys, AnLseOfMinusInfinityHidesNoKeys) {
  Case c = toy_sequence();
  c.training = false;
  ToySight sight = sees_all();
  sight.lse_factor = -std::numeric_limits<double>::infinity();
  const SeenKeys seen = seen_by(c, sight);
  EXPECT_FALSE(seen.wrong) << test::text_of(seen);
  EXPECT_THAT(seen.notes,
              Contains(AllOf(StartsWith("for 16 of 16 queries"), HasSubstr("the lse is not the logarithm"))));
}

// Queries 8..15 see every key twice, or their lse is too large by log 2. The lse of queries 0..7, which see one key
// twice, is right.
TEST(SeenKeys, AnLseThatFailsAloneSaysNothingOfKeys) {
  Case c = toy_sequence();
  c.training = false;
  ToySight sight;
  sight.times = {pairs_with(8, 15, 0, 15, 2)};
  sight.times.front().narrow(0, 0, 8).select(1, 0).fill_(2);
  const auto excess_of = [&](const std::vector<Check>& checks) {
    return seen_by_all(c, sight, {}, checks).front().pairs.excess_pairs;
  };
  Check lse;
  lse.tensor = "lse";
  lse.ok = false;
  Check out = lse;
  out.tensor = "out";
  EXPECT_EQ(excess_of({out, lse}), 8 + 8 * kToyTokens);
  EXPECT_EQ(excess_of({lse}), 8);
}

TEST(SeenKeys, WhatDoesNotRepeatIsUnknown) {
  ToySight sight = sees_all();
  sight.repeats = false;
  EXPECT_THAT(seen_by(toy_sequence(), sight).why_not, HasSubstr("different bits"));
}

TEST(SeenKeys, NothingIsAskedAfterTheDeadline) {
  Settings settings;
  settings.deadline = std::chrono::steady_clock::now();
  for (const SeenKeys& seen : seen_by_all(toy_sequence(), sees_all(), settings)) {
    EXPECT_EQ(seen.why_not, "there was no time for a step");
    EXPECT_FALSE(seen.wrong);
  }
}

TEST(SeenKeys, NoMoreKeysAreAskedThanCanBe) {
  Case c = toy_sequence();
  c.seqlen_q = c.seqlen_kv = 4100;
  EXPECT_THAT(seen_by(c, sees_all()).why_not, HasSubstr("at most 4096"));
}

TEST(SeenKeys, QuestionsAreTold) {
  std::vector<std::string> questions;
  Settings settings;
  verify::Sharding sharding;
  settings.on_phase = [&](std::string_view question) { questions.emplace_back(question); };
  Case c = toy_sequence();
  c.cp_size = 1;
  (void)seen_by_all(c, sees_all(), settings);
  EXPECT_THAT(questions, ElementsAre("which keys each query saw", "which keys each query saw, with all heads"));
}

}  // namespace
}  // namespace cp_pool::diagnosis
