#include "cp_core/context_parallel/row_sum.h"

#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

// The last bit of 1 in bf16: 1 + 2^-7 is a bf16 number, 1 + 2^-8 is not.
constexpr double kLastBit = 0x1p-7;

at::Tensor rows_of(std::int64_t rows, double value, at::ScalarType dtype) {
  return at::full({rows, 2, 4}, value, at::TensorOptions(dtype));
}

at::Tensor like() {
  return rows_of(6, 0, at::kBFloat16);
}

TEST(RowSum, IsZeroWithoutAContribution) {
  RowSum sum(like());
  EXPECT_TRUE(sum.empty());
  EXPECT_TRUE(at::equal(sum.whole(), like()));
}

TEST(RowSum, KeepsTheOnlyContributionAsItCame) {
  RowSum sum(like());
  const at::Tensor part = rows_of(6, 1, at::kBFloat16);
  sum.add(all_rows(part));
  EXPECT_TRUE(sum.whole().is_same(part));
}

TEST(RowSum, PutsRowsInTheirPlaceAndZerosElsewhere) {
  RowSum sum(like());
  sum.add({.tensor = rows_of(3, 2, at::kBFloat16),
           .rows = {{.source = 0, .target = 1, .count = 1}, {.source = 1, .target = 4, .count = 2}}});
  const at::Tensor first = sum.whole().select(1, 0).select(1, 0).to(at::kFloat);
  EXPECT_EQ(sum.whole().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(first, at::tensor({0.F, 2.F, 0.F, 0.F, 2.F, 2.F})));
}

TEST(RowSum, IsFp32FromTheSecondContributionOn) {
  RowSum sum(like());
  sum.add(all_rows(rows_of(6, 1, at::kBFloat16)));
  sum.add({.tensor = rows_of(1, kLastBit / 4, at::kBFloat16), .rows = {{.source = 0, .target = 5, .count = 1}}});
  sum.add({.tensor = rows_of(1, kLastBit / 4, at::kBFloat16), .rows = {{.source = 0, .target = 5, .count = 1}}});
  const at::Tensor whole = sum.whole();
  EXPECT_EQ(whole.scalar_type(), at::kFloat);
  EXPECT_EQ(whole[5][1][3].item<double>(), 1 + kLastBit / 2);
  EXPECT_EQ(whole[4][1][3].item<double>(), 1);
}

TEST(RowSum, RoundsTwoContributionsOnce) {
  RowSum sum(like());
  sum.add(all_rows(rows_of(6, 1, at::kBFloat16)));
  sum.add_last(all_rows(rows_of(6, kLastBit * 0.75, at::kFloat)));
  EXPECT_EQ(sum.whole().scalar_type(), at::kBFloat16);
  EXPECT_EQ(sum.whole()[0][0][0].item<double>(), 1 + kLastBit);
}

TEST(RowSum, RoundsAllThatWaitedOnceAtTheEnd) {
  RowSum sum(like());
  sum.add(all_rows(rows_of(6, 1, at::kBFloat16)));
  sum.add({.tensor = rows_of(2, kLastBit / 4, at::kBFloat16), .rows = {{.source = 0, .target = 1, .count = 2}}});
  sum.add_last({{.tensor = rows_of(3, kLastBit / 4, at::kBFloat16), .rows = {{.source = 0, .target = 2, .count = 3}}},
                {.tensor = rows_of(1, kLastBit / 4, at::kBFloat16), .rows = {{.source = 0, .target = 2, .count = 1}}}});
  EXPECT_EQ(sum.whole().scalar_type(), at::kBFloat16);
  const at::Tensor first = sum.whole().select(1, 0).select(1, 0).to(at::kDouble);
  EXPECT_TRUE(at::equal(first, at::tensor({1.0, 1.0, 1 + kLastBit, 1.0, 1.0, 1.0}, at::kDouble)));
}

TEST(RowSum, RoundsOnceWhatNoContributionHasWhole) {
  RowSum sum(like());
  sum.add({.tensor = rows_of(2, 1, at::kBFloat16), .rows = {{.source = 0, .target = 1, .count = 2}}});
  sum.add_last({.tensor = rows_of(2, 3, at::kBFloat16), .rows = {{.source = 0, .target = 2, .count = 2}}});
  EXPECT_EQ(sum.whole().scalar_type(), at::kBFloat16);
  const at::Tensor first = sum.whole().select(1, 0).select(1, 0).to(at::kFloat);
  EXPECT_TRUE(at::equal(first, at::tensor({0.F, 1.F, 4.F, 3.F, 0.F, 0.F})));
}

TEST(RowSum, AddsContributionsOfSeveralDtypesInFp32) {
  RowSum sum(like());
  sum.add(all_rows(rows_of(6, 1, at::kBFloat16)));
  sum.add_last({all_rows(rows_of(6, kLastBit / 4, at::kFloat)), all_rows(rows_of(6, kLastBit / 8, at::kBFloat16))});
  EXPECT_EQ(sum.whole().scalar_type(), at::kFloat);
  EXPECT_EQ(sum.whole()[0][0][0].item<double>(), 1 + kLastBit * 0.375);
}

TEST(RowSum, KeepsFewContributionsWaiting) {
  RowSum sum(like());
  sum.add(all_rows(rows_of(6, 1, at::kBFloat16)));
  for (int i = 0; i < 10; ++i) sum.add(all_rows(rows_of(6, kLastBit / 4, at::kBFloat16)));
  std::int64_t rows = 0;
  for (const SomeRows& part : sum.take()) rows += part.tensor.size(0);
  EXPECT_LE(rows, 3 * 6);
  EXPECT_TRUE(sum.empty());
}

TEST(RowSum, GivesWhatHasComeInOrder) {
  RowSum sum(like());
  const at::Tensor one = rows_of(6, 1, at::kBFloat16);
  const at::Tensor other = rows_of(2, 2, at::kBFloat16);
  sum.add(all_rows(one));
  sum.add({.tensor = other, .rows = {{.source = 0, .target = 4, .count = 2}}});
  const std::vector<SomeRows> parts = sum.take();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_TRUE(parts[0].tensor.is_same(one));
  EXPECT_TRUE(parts[1].tensor.is_same(other));
}

TEST(RowSum, AddsTheLastToASumInFp32) {
  RowSum sum(like());
  sum.add(all_rows(rows_of(6, 1, at::kFloat)));
  sum.add_last({.tensor = rows_of(2, kLastBit / 2, at::kBFloat16), .rows = {{.source = 0, .target = 2, .count = 2}}});
  EXPECT_EQ(sum.whole().scalar_type(), at::kFloat);
  EXPECT_EQ(sum.whole()[3][0][0].item<double>(), 1 + kLastBit / 2);
  EXPECT_EQ(sum.whole()[4][0][0].item<double>(), 1);
}

}  // namespace
}  // namespace cp_pool
