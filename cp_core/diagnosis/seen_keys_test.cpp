// Tests what is observed of the faults of an implementation that is not ours.
#include "cp_core/diagnosis/seen_keys.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
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
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
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
                                  bool trusts_lse = true) {
  verify::Sharding sharding;
  sharding.rows = verify::parse_convention("contiguous").value();
  return test::seen_on_threads(
      c, [&] { return std::make_unique<ToyAttention>(sharding, sight); }, settings, trusts_lse);
}

SeenKeys seen_by(const Case& c, const ToySight& sight) {
  return seen_by_all(c, sight).front();
}

TEST(SeenKeys, Rank0KnowsThePairs) {
  ToySight sight;
  sight.times = {pairs_with(8, 15, 2, 3, 0)};
  const std::vector<SeenKeys> seen = seen_by_all(toy_sequence(), sight);
  EXPECT_TRUE(seen[0].wrong);
  EXPECT_TRUE(at::equal(seen[0].times, sight.times.front()));
  ASSERT_EQ(seen[0].pairs.missing.size(), 1);
  EXPECT_EQ(seen[0].pairs.missing.front().text, "queries 8..15 (rank 1) did not see keys 2..3 (rank 0)");
  EXPECT_FALSE(seen[1].times.defined());
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
TEST(SeenKeys, AnLseThatIsNotTrustedSaysNothingOfKeys) {
  Case c = toy_sequence();
  c.training = false;
  ToySight sight;
  sight.times = {pairs_with(8, 15, 0, 15, 2)};
  sight.times.front().narrow(0, 0, 8).select(1, 0).fill_(2);
  EXPECT_EQ(seen_by_all(c, sight).front().pairs.excess_pairs, 8 + 8 * kToyTokens);
  EXPECT_EQ(seen_by_all(c, sight, {}, /*trusts_lse=*/false).front().pairs.excess_pairs, 8);
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
    EXPECT_EQ(seen.why_not, "there was no time for all steps");
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
  EXPECT_THAT(questions, ElementsAre("which keys each query saw"));
}

struct Read {
  bool weighs = false;
  bool contradicted = false;
  std::vector<double> times;
};

// Reads one query, after one that proves lse right.
Read read(const std::vector<float>& weights, std::optional<double> lse, DType dtype = DType::fp32) {
  const auto keys = static_cast<std::int64_t>(weights.size());
  at::Tensor both = at::zeros({2, keys}, at::kDouble);
  both.select(0, 0).fill_(1.0 / static_cast<double>(keys));
  both.select(0, 1).copy_(at::tensor(weights));
  const at::Tensor of_both = lse ? at::tensor({std::log(static_cast<double>(keys)), *lse}, at::kDouble) : at::Tensor();
  const Reading reading = read_weights(both, of_both, weight_tolerance(dtype, 2), /*trusts_lse=*/true);
  const at::Tensor times = reading.times[1].contiguous();
  return {.weighs = reading.weighs[1].item<bool>(),
          .contradicted = reading.contradicted[1].item<bool>(),
          .times = {times.const_data_ptr<double>(), times.const_data_ptr<double>() + keys}};
}

// Returns the weights of keys that are seen this often.
std::vector<float> weights_of(const std::vector<double>& times) {
  double sum = 0;
  for (const double one : times) sum += one;
  std::vector<float> weights;
  for (const double one : times) weights.push_back(static_cast<float>(one / sum));
  return weights;
}

TEST(ReadWeights, CountsHowOftenEachKeyIsSeen) {
  const auto [weighs, contradicted, times] = read(weights_of({1, 0, 2, 3, 1}), std::log(7.0));
  EXPECT_FALSE(weighs);
  EXPECT_THAT(times, ElementsAre(1, 0, 2, 3, 1));
  EXPECT_FALSE(contradicted);
}

TEST(ReadWeights, KnowsTimesUpToAFactorWithoutLse) {
  EXPECT_THAT(read(weights_of({1, 0, 2, 1}), std::nullopt).times, ElementsAre(1, 0, 2, 1));
  EXPECT_THAT(read(weights_of({2, 0, 2, 2}), std::nullopt).times, ElementsAre(1, 0, 1, 1));
}

TEST(ReadWeights, IsExactInBf16ForThousandsOfKeys) {
  std::vector<double> seen(4001, 1);
  seen[7] = 0;
  seen[11] = 2;
  std::vector<float> weights = weights_of(seen);
  for (float& weight : weights) weight = static_cast<float>(c10::BFloat16(weight));
  EXPECT_EQ(read(weights, std::log(4001.0), DType::bf16).times, seen);
  EXPECT_EQ(read(weights, std::nullopt, DType::bf16).times, seen);
}

TEST(ReadWeights, WeightsThatAreNoNumbersStayWeights) {
  const auto [weighs, contradicted, times] = read({0.25F, 0.25F, 0.5F * 0.8F, 0.1F}, std::log(4.0));
  EXPECT_TRUE(weighs);
  EXPECT_THAT(times, Pointwise(DoubleNear(1e-6), std::vector{1.0, 1.0, 1.6, 0.4}));
}

// Parts of 4 and of 2 keys are merged by the plain mean, and lse is 0. The ratios of weights are whole numbers, but
// they come from no set of keys.
TEST(ReadWeights, AnLseThatContradictsMakesNoNumbersOfUnequalWeights) {
  const auto [weighs, contradicted, times] = read({0.125F, 0.125F, 0.125F, 0.125F, 0.25F, 0.25F}, 0.0);
  EXPECT_TRUE(weighs);
  EXPECT_THAT(times, Pointwise(DoubleNear(1e-6), std::vector{0.75, 0.75, 0.75, 0.75, 1.5, 1.5}));
}

TEST(ReadWeights, EqualWeightsShowTheSetWhateverLseSays) {
  const auto [weighs, contradicted, times] = read(weights_of({1, 1, 0, 1, 1}), 0.0);
  EXPECT_FALSE(weighs);
  EXPECT_THAT(times, ElementsAre(1, 1, 0, 1, 1));
  EXPECT_TRUE(contradicted);
}

TEST(ReadWeights, AnLseOfNoKeysTakesNoneFromOut) {
  const double nothing = -std::numeric_limits<double>::infinity();
  for (const double lse : {nothing, -30.0, std::numeric_limits<double>::quiet_NaN()}) {
    const auto [weighs, contradicted, times] = read(weights_of({1, 1, 0, 1, 1}), lse);
    EXPECT_THAT(times, ElementsAre(1, 1, 0, 1, 1)) << lse;
    EXPECT_TRUE(contradicted) << lse;
  }
}

TEST(ReadWeights, WhatHasNoValueIsNoKey) {
  const auto [weighs, contradicted, times] = read({0.2F, 0.2F, 0}, std::log(5.0));
  EXPECT_THAT(times, ElementsAre(1, 1, 0));
}

TEST(ReadWeights, ARowThatSeesNothing) {
  const double nothing = -std::numeric_limits<double>::infinity();
  const auto [weighs, contradicted, times] = read({0, 0, 0}, nothing);
  EXPECT_FALSE(weighs);
  EXPECT_THAT(times, Each(0));
  EXPECT_FALSE(contradicted);
  EXPECT_TRUE(read({0, 0, 0}, -nothing).contradicted);
}

TEST(ReadWeights, ThatAllKeysAreSeenTwiceRestsOnLseAlone) {
  const auto [weighs, contradicted, times] = read(weights_of({1, 1, 0}), std::log(4.0));
  EXPECT_THAT(times, ElementsAre(2, 2, 0));
  EXPECT_TRUE(contradicted);
}

TEST(ReadWeights, WhatIsNotFiniteIsUnknown) {
  const auto [weighs, contradicted, times] = read({0.5F, std::numeric_limits<float>::quiet_NaN()}, std::log(2.0));
  EXPECT_FALSE(weighs);
  EXPECT_TRUE(std::isnan(times[0]) && std::isnan(times[1]));
}

TEST(ReadWeights, NegativeWeightsAreNoKeys) {
  const auto [weighs, contradicted, times] = read({0.5F, -0.25F, 0.5F}, std::log(2.0));
  EXPECT_TRUE(weighs);
  EXPECT_TRUE(std::isnan(times[0]));
}

}  // namespace
}  // namespace cp_pool::diagnosis
