#include "cp_core/verify/check.h"

#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The rows of rank 0 of 2 of one sequence with 6 valid tokens, padded to 8: positions 0 and 1 are valid, 6 and 7 are
// padding.
RankRows padded_rows() {
  return {Layout::thd, 0, 2, {6}, {8}};
}

// 3 heads of 2 elements, all 1; every row has a bound of 0.1.
ExpectedTensor ones(std::string_view name = "out") {
  ExpectedTensor expected;
  expected.name = name;
  expected.value = at::full({6, 3, 2}, 1.0, at::kDouble);
  expected.baseline_error = at::full({6, 3}, 0.04, at::kDouble);
  expected.bound = at::full({6, 3}, 0.1, at::kDouble);
  return expected;
}

at::Tensor right_answer() {
  at::Tensor actual = at::full({4, 3, 2}, 1.0, at::kFloat);
  actual.narrow(0, 2, 2).zero_();
  return actual;
}

TEST(Check, AcceptsTheRightAnswer) {
  const Check check = check_tensor(ones(), padded_rows(), right_answer());
  EXPECT_TRUE(check.ok);
  EXPECT_EQ(check.message, "");
  EXPECT_EQ(check.max_abs, 0);
}

TEST(Check, GivesTheFiguresOfTheWorstRow) {
  at::Tensor actual = right_answer();
  actual[0][0].add_(0.01);
  actual[1][2].sub_(0.09);
  const Check check = check_tensor(ones(), padded_rows(), actual);
  EXPECT_TRUE(check.ok);
  EXPECT_NEAR(check.max_abs, 0.09, 1e-6);
  EXPECT_NEAR(check.error, 0.09, 1e-6);
  EXPECT_NEAR(check.rms, std::sqrt((0.01 * 0.01 + 0.09 * 0.09) / 6), 1e-6);
  EXPECT_EQ(check.bound, 0.1);
  EXPECT_EQ(check.baseline, 0.04);
  EXPECT_THAT(check.worst_index, ElementsAre(0, 1, 2));
}

TEST(Check, RefusesARowBeyondItsBound) {
  at::Tensor actual = right_answer();
  actual[1][2].add_(0.11);
  const Check check = check_tensor(ones(), padded_rows(), actual);
  EXPECT_FALSE(check.ok);
  EXPECT_THAT(check.message, HasSubstr("error beyond the bound in 1 of 6 rows"));
  EXPECT_THAT(check.worst_index, ElementsAre(0, 1, 2));
}

TEST(Check, HoldsEachRowToItsOwnBound) {
  ExpectedTensor expected = ones();
  expected.bound[0][0].fill_(10.0);  // a hundred times that of the other rows
  at::Tensor actual = right_answer();
  actual[0][0].add_(1.0);
  EXPECT_TRUE(check_tensor(expected, padded_rows(), actual).ok);
  actual[1][2].add_(1.0);
  const Check check = check_tensor(expected, padded_rows(), actual);
  EXPECT_THAT(check.message, HasSubstr("error beyond the bound in 1 of 6 rows"));
  EXPECT_THAT(check.worst_index, ElementsAre(0, 1, 2));
}

TEST(Check, MeasuresARowByTheRootMeanSquareOfItsElements) {
  at::Tensor actual = right_answer();
  actual[0][0][1].add_(0.14);  // 0.14 / sqrt(2) = 0.099
  EXPECT_TRUE(check_tensor(ones(), padded_rows(), actual).ok);
  actual[0][0][1].add_(0.01);
  EXPECT_FALSE(check_tensor(ones(), padded_rows(), actual).ok);
}

TEST(Check, AllowsNoErrorWhereTheBoundIsZero) {
  ExpectedTensor expected = ones();
  expected.bound.zero_();
  EXPECT_TRUE(check_tensor(expected, padded_rows(), right_answer()).ok);
  at::Tensor actual = right_answer();
  actual[0][0][0].add_(1e-6);
  EXPECT_FALSE(check_tensor(expected, padded_rows(), actual).ok);
}

TEST(Check, SeesNaNInOneElement) {
  at::Tensor actual = right_answer();
  actual[1][0][1].fill_(std::numeric_limits<double>::quiet_NaN());
  const Check check = check_tensor(ones(), padded_rows(), actual);
  EXPECT_FALSE(check.ok);
  EXPECT_EQ(check.message, "NaN in 1 rows");
  EXPECT_THAT(check.worst_index, ElementsAre(0, 1, 0));
  EXPECT_TRUE(std::isnan(check.max_abs));
}

TEST(Check, SeesInfinity) {
  at::Tensor actual = right_answer();
  actual[0][1][0].fill_(-kInfinity);
  const Check check = check_tensor(ones(), padded_rows(), actual);
  EXPECT_FALSE(check.ok);
  EXPECT_THAT(check.message, HasSubstr("infinite in 1 rows"));
}

TEST(Check, AcceptsMinusInfinityOnlyWhereTheReferenceHasIt) {
  ExpectedTensor expected = ones("lse");
  expected.value[0].fill_(-kInfinity);
  at::Tensor actual = right_answer();
  actual[0].fill_(-kInfinity);
  actual.narrow(0, 2, 2).fill_(-kInfinity);
  EXPECT_TRUE(check_tensor(expected, padded_rows(), actual).ok);
  actual[0].fill_(-1e30);
  const Check check = check_tensor(expected, padded_rows(), actual);
  EXPECT_FALSE(check.ok);
  EXPECT_EQ(check.message, "finite in 3 rows that should be -inf");
}

TEST(Check, RefusesPaddingThatIsNotZero) {
  for (const double value : {1e-30, std::numeric_limits<double>::quiet_NaN()}) {
    at::Tensor actual = right_answer();
    actual[3][1][0].fill_(value);
    const Check check = check_tensor(ones(), padded_rows(), actual);
    EXPECT_FALSE(check.ok);
    EXPECT_EQ(check.message, "padding is not zero in 1 rows");
    EXPECT_THAT(check.worst_index, ElementsAre(0, 7, 1));
  }
}

TEST(Check, RefusesPaddingOfALseThatIsNotMinusInfinity) {
  EXPECT_THAT(check_tensor(ones("lse"), padded_rows(), right_answer()).message, HasSubstr("padding is not -inf in 6"));
}

TEST(Check, HoldsTheFixedToleranceToo) {
  constexpr std::int64_t kDim = 64;
  ExpectedTensor expected = ones();
  expected.value = at::full({6, 3, kDim}, 1.0, at::kDouble);
  expected.ceiling_asked = 0.03;  // allows 0.06 for a value of 1
  expected.rounding = 0.01;
  at::Tensor actual = at::full({4, 3, kDim}, 1.0, at::kFloat);
  actual.narrow(0, 2, 2).zero_();
  actual[1][1].add_(0.07);
  EXPECT_EQ(check_tensor(expected, padded_rows(), actual).message, "beyond the fixed tolerance 0.03 in 1 rows");
  expected.rounding = 0.011;
  EXPECT_EQ(check_tensor(expected, padded_rows(), actual).message, "") << "rounding comes too near";
  ExpectedTensor few = ones();
  few.ceiling_asked = 0.03;
  at::Tensor of_few = right_answer();
  of_few[1][1].add_(0.07);
  EXPECT_EQ(check_tensor(few, padded_rows(), of_few).message, "") << "few elements tell nothing of rounding";
}

TEST(Check, RefusesEverythingWhereNobodyKnowsWhatIsRight) {
  for (at::Tensor ExpectedTensor::* const unknown : {&ExpectedTensor::value, &ExpectedTensor::bound}) {
    ExpectedTensor expected = ones();
    (expected.*unknown)[0][0].fill_(std::numeric_limits<double>::quiet_NaN());
    EXPECT_FALSE(check_tensor(expected, padded_rows(), right_answer()).ok);
  }
}

TEST(Check, AllowsNothingWhereNothingContributes) {
  ExpectedTensor expected = ones("dbias");
  expected.value[0][0][1].zero_();
  expected.untouched = expected.value.eq(0.0);
  at::Tensor actual = right_answer();
  actual[0][0][1].zero_();
  EXPECT_TRUE(check_tensor(expected, padded_rows(), actual).ok);
  actual[0][0][1].fill_(1e-6);
  EXPECT_EQ(check_tensor(expected, padded_rows(), actual).message, "not zero where nothing contributes in 1 rows");
}

// 64 rows of one head that fp16 has and bf16 has not, or has too.
ExpectedTensor one_plus(double fraction) {
  ExpectedTensor expected;
  expected.name = "dq";
  expected.value = at::full({64, 1, 1}, 1.0 + fraction, at::kDouble);
  expected.baseline_error = at::full({64, 1}, 0.01, at::kDouble);
  expected.bound = at::full({64, 1}, 0.03, at::kDouble);
  return expected;
}

TEST(Check, RefusesFp16ThatWentThroughBf16) {
  const RankRows rows(Layout::bshd, 0, 1, {64}, {64});
  at::Tensor actual = at::full({64, 1, 1}, 1.0, at::kHalf);
  const Check check = check_tensor(one_plus(0x1p-10), rows, actual);
  EXPECT_FALSE(check.ok);
  EXPECT_THAT(check.message, HasSubstr("every value is a bf16 number"));
  EXPECT_TRUE(check_tensor(one_plus(0x1p-10), rows, actual, {.judges_bits = false}).ok);
  EXPECT_TRUE(check_tensor(one_plus(0x1p-10), rows, actual.to(at::kFloat)).ok);
  EXPECT_TRUE(check_tensor(one_plus(0), rows, actual).ok) << "the reference has such numbers only";
  actual[63] = 1.0 + 0x1p-10;
  EXPECT_TRUE(check_tensor(one_plus(0x1p-10), rows, actual).ok);
}

TEST(Check, RefusesAWrongShape) {
  const Check check = check_tensor(ones(), padded_rows(), at::zeros({4, 3, 1}));
  EXPECT_FALSE(check.ok);
  EXPECT_EQ(check.message, "shape [4, 3, 1] instead of [4, 3, 2]");
}

TEST(Check, AcceptsARankThatHoldsOnlyPadding) {
  ExpectedTensor expected = ones();
  const RankRows rows(Layout::thd, 1, 2, {1}, {8});
  EXPECT_TRUE(check_tensor(expected, rows, at::zeros({4, 3, 2})).ok);
}

}  // namespace
}  // namespace cp_pool::verify
