#include "cp_core/thd/merge_math.h"

#include <cmath>

#include <gtest/gtest.h>

namespace cp_pool::merge_math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(MergeMath, ExponentialIsExactFarBelowFloat) {
  for (double x = -100.0; x <= 100.0; x += 0.0137) {
    EXPECT_NEAR(exponential(x) / std::exp(x), 1.0, 2e-14) << "at " << x;
  }
}

TEST(MergeMath, ExponentialOfTheSpecialValues) {
  EXPECT_EQ(exponential(0.0), 1.0);
  EXPECT_EQ(exponential(-kInfinity), 0.0);
  EXPECT_EQ(exponential(-1e300), 0.0);
  EXPECT_EQ(exponential(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exponential(std::nan(""))));
}

TEST(MergeMath, LogOnePlusIsExactNearZeroAndOne) {
  for (double y = 1e-300; y <= 1.0; y *= 1.5) EXPECT_NEAR(log_one_plus(y) / std::log1p(y), 1.0, 2e-15) << "at " << y;
  EXPECT_EQ(log_one_plus(0.0), 0.0);
  EXPECT_NEAR(log_one_plus(1.0), std::log(2.0), 2e-15);
}

TEST(MergeMath, LogAddExpOfTheSpecialValues) {
  EXPECT_EQ(log_add_exp(kMinusInfinity, kMinusInfinity), -kInfinity);
  EXPECT_EQ(log_add_exp(kMinusInfinity, 3.0F), 3.0);
  EXPECT_EQ(log_add_exp(3.0F, kMinusInfinity), 3.0);
  EXPECT_DOUBLE_EQ(log_add_exp(1000.0F, 1000.0F), 1000.0 + std::log(2.0));
  EXPECT_TRUE(std::isnan(log_add_exp(std::nanf(""), 1.0F)));
  EXPECT_TRUE(std::isnan(log_add_exp(1.0F, std::nanf(""))));
}

TEST(MergeMath, WeightsOfTheTwoPartsAddUpToOne) {
  for (float a = -40.0F; a <= 40.0F; a += 0.37F) {
    const double total = log_add_exp(a, 1.5F);
    EXPECT_NEAR(weight(a, total) + weight(1.5F, total), 1.0, 1.2e-7) << "at " << a;
  }
  EXPECT_EQ(weight(kMinusInfinity, -kInfinity), 0.0F);
}

}  // namespace
}  // namespace cp_pool::merge_math
