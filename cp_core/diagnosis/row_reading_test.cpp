#include "cp_core/diagnosis/row_reading.h"

#include <cmath>
#include <limits>
#include <vector>

#include <c10/util/BFloat16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::diagnosis {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::Pointwise;
using Kind = RowReading::Kind;

struct Read {
  RowReading row;
  std::vector<double> times;
};

Read read(const std::vector<float>& weights, std::optional<double> lse, bool whole = true, DType dtype = DType::fp32) {
  Read read{.row = {}, .times = std::vector<double>(weights.size())};
  read.row = read_row(weights, lse, whole, weight_tolerance(dtype, 2), read.times);
  return read;
}

// Returns the weights of keys that are seen this often.
std::vector<float> weights_of(const std::vector<double>& times) {
  double sum = 0;
  for (const double one : times) sum += one;
  std::vector<float> weights;
  for (const double one : times) weights.push_back(static_cast<float>(one / sum));
  return weights;
}

TEST(RowReading, CountsHowOftenEachKeyIsSeen) {
  const auto [row, times] = read(weights_of({1, 0, 2, 3, 1}), std::log(7.0));
  EXPECT_EQ(row.kind, Kind::numbers);
  EXPECT_THAT(times, ElementsAre(1, 0, 2, 3, 1));
  EXPECT_FALSE(row.lse_is_wrong || row.only_lse_counts || row.negative);
}

TEST(RowReading, KnowsTimesUpToAFactorWithoutLse) {
  EXPECT_THAT(read(weights_of({1, 0, 2, 1}), std::nullopt).times, ElementsAre(1, 0, 2, 1));
  EXPECT_THAT(read(weights_of({2, 0, 2, 2}), std::nullopt).times, ElementsAre(1, 0, 1, 1));
}

TEST(RowReading, IsExactInBf16ForThousandsOfKeys) {
  std::vector<double> seen(4001, 1);
  seen[7] = 0;
  seen[11] = 2;
  std::vector<float> weights = weights_of(seen);
  for (float& weight : weights) weight = static_cast<float>(c10::BFloat16(weight));
  EXPECT_EQ(read(weights, std::log(4001.0), true, DType::bf16).times, seen);
  EXPECT_EQ(read(weights, std::nullopt, true, DType::bf16).times, seen);
}

TEST(RowReading, WeightsThatAreNoNumbersStayWeights) {
  const auto [row, times] = read({0.25F, 0.25F, 0.5F * 0.8F, 0.1F}, std::log(4.0));
  EXPECT_EQ(row.kind, Kind::weights);
  EXPECT_THAT(times, Pointwise(DoubleNear(1e-6), std::vector{1.0, 1.0, 1.6, 0.4}));
}

// Parts of 4 and of 2 keys are merged by the plain mean, and lse is 0. The ratios of weights are whole numbers, but
// they come from no set of keys.
TEST(RowReading, AnLseThatContradictsMakesNoNumbersOfUnequalWeights) {
  const auto [row, times] = read({0.125F, 0.125F, 0.125F, 0.125F, 0.25F, 0.25F}, 0.0);
  EXPECT_EQ(row.kind, Kind::weights);
  EXPECT_THAT(times, Pointwise(DoubleNear(1e-6), std::vector{0.75, 0.75, 0.75, 0.75, 1.5, 1.5}));
}

TEST(RowReading, EqualWeightsShowTheSetWhateverLseSays) {
  const auto [row, times] = read(weights_of({1, 1, 0, 1, 1}), 0.0);
  EXPECT_EQ(row.kind, Kind::numbers);
  EXPECT_THAT(times, ElementsAre(1, 1, 0, 1, 1));
  EXPECT_TRUE(row.lse_is_wrong);
}

TEST(RowReading, AnLseOfNoKeysTakesNoneFromOut) {
  const double nothing = -std::numeric_limits<double>::infinity();
  for (const double lse : {nothing, -30.0, std::numeric_limits<double>::quiet_NaN()}) {
    const auto [row, times] = read(weights_of({1, 1, 0, 1, 1}), lse);
    EXPECT_THAT(times, ElementsAre(1, 1, 0, 1, 1)) << lse;
    EXPECT_TRUE(row.lse_is_wrong) << lse;
  }
  EXPECT_EQ(read({0.25F, 0.25F}, nothing, /*whole=*/false).row.kind, Kind::unknown);
}

TEST(RowReading, WhatHasNoValueIsNoKey) {
  const auto [row, times] = read({0.2F, 0.2F, 0}, std::log(5.0));
  EXPECT_THAT(times, ElementsAre(1, 1, 0));
}

TEST(RowReading, ARowThatSeesNothing) {
  const double nothing = -std::numeric_limits<double>::infinity();
  const auto [row, times] = read({0, 0, 0}, nothing);
  EXPECT_EQ(row.kind, Kind::numbers);
  EXPECT_THAT(times, Each(0));
  EXPECT_FALSE(row.lse_is_wrong);
  EXPECT_TRUE(read({0, 0, 0}, -nothing).row.lse_is_wrong);
}

TEST(RowReading, ThatAllKeysAreSeenTwiceRestsOnLseAlone) {
  const auto [row, times] = read(weights_of({1, 1, 0}), std::log(4.0));
  EXPECT_THAT(times, ElementsAre(2, 2, 0));
  EXPECT_TRUE(row.only_lse_counts);
}

TEST(RowReading, WhatIsNotFiniteIsUnknown) {
  const auto [row, times] = read({0.5F, std::numeric_limits<float>::quiet_NaN()}, std::log(2.0));
  EXPECT_EQ(row.kind, Kind::unknown);
  EXPECT_TRUE(std::isnan(times[0]) && std::isnan(times[1]));
}

TEST(RowReading, NegativeWeightsAreNoKeys) {
  const auto [row, times] = read({0.5F, -0.25F, 0.5F}, std::log(2.0));
  EXPECT_EQ(row.kind, Kind::unknown);
  EXPECT_TRUE(row.negative);
}

TEST(RowReading, OfSomeKeysSaysNothingThatAllWouldHaveToShow) {
  const auto [row, times] = read({0.25F, 0.25F}, std::log(4.0), /*whole=*/false);
  EXPECT_THAT(times, ElementsAre(1, 1));
  EXPECT_EQ(read({0.25F, 0.25F}, 0.0, /*whole=*/false).row.kind, Kind::unknown);
}

}  // namespace
}  // namespace cp_pool::diagnosis
