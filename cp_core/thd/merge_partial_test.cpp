#include "cp_core/thd/merge_partial.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

TEST(RowDelta, RoundsNoProduct) {
  const at::Tensor out = at::randn({20, 3, 64}).to(at::kBFloat16);
  const at::Tensor dout = at::randn({20, 3, 64}).to(at::kBFloat16);
  const at::Tensor exact = out.to(at::kDouble).mul(dout.to(at::kDouble)).sum(-1).t();
  EXPECT_TRUE(row_delta(out, dout).to(at::kDouble).allclose(exact, 1e-5, 1e-5));
}

// The part with the smaller lse counts as long as fp32 can represent its share. Nothing overflows, however large lse
// is.
TEST(MergePartial, OfPartsFarApartInLseIsTheDefinition) {
  for (const double larger : {0.0, 5.0, 95.0, 300.0, 2000.0, -100.0, -300.0}) {
    for (const double apart : {0.0, 2.0, 10.0, 15.0, 40.0, 100.0, 800.0}) {
      for (const bool larger_first : {true, false}) {
        const double first = larger_first ? larger : larger - apart;
        const double second = larger_first ? larger - apart : larger;
        at::Tensor out = at::full({1, 1, 2}, 3.0, at::kFloat);
        at::Tensor lse = at::full({1, 1}, first, at::kFloat);
        merge_partial(out, lse, at::full({1, 1, 2}, -5.0, at::kFloat), at::full({1, 1}, second, at::kFloat),
                      std::vector<RowCopy>{{.source = 0, .target = 0, .count = 1}});
        const double smaller_weight = 1 / (1 + std::exp(apart));
        const double weight = larger_first ? smaller_weight : 1 - smaller_weight;
        const double expected_lse = larger + std::log1p(std::exp(-apart));
        EXPECT_NEAR(out[0][0][1].item<float>(), 3 - 8 * weight, 1e-6) << first << " and " << second;
        EXPECT_NEAR(lse.item<float>(), expected_lse, 1e-7 * std::abs(expected_lse) + 1e-38)
            << first << " and " << second;
      }
    }
  }
}

TEST(MergeSink, AboveEveryScoreTakesTheWholeRow) {
  at::Tensor out = at::full({1, 1, 2}, 3.0, at::kFloat);
  at::Tensor lse = at::full({1, 1}, -200.0, at::kFloat);
  merge_sink(out, lse, at::full({1}, 1.5, at::kFloat), std::vector<RowRange>{{.row = 0, .count = 1}});
  EXPECT_EQ(lse.item<float>(), 1.5F);
  EXPECT_EQ(out.abs().max().item<float>(), 0.0F);
}

TEST(SinkGradient, IsOfAllRowsHoweverManyRangesTheyAre) {
  constexpr std::int64_t kRanges = 2500;
  std::vector<RowRange> rows;
  for (std::int64_t i = 0; i < kRanges; ++i) rows.push_back({.row = 2 * i, .count = 1});
  const at::Tensor ones = at::full({1, 2 * kRanges}, 1.0, at::kFloat);
  // Each of the rows contributes -exp(1 - 1) * 1.
  EXPECT_EQ(sink_gradient(at::full({1}, 1.0, at::kFloat), ones, ones, rows).item<float>(), -kRanges);
}

TEST(SinkGradient, OfNoRowsIsNotMinusZero) {
  const at::Tensor ones = at::full({1, 4}, 1.0, at::kFloat);
  const float gradient = sink_gradient(at::full({1}, 1.0, at::kFloat), ones, ones, {}).item<float>();
  EXPECT_EQ(gradient, 0.0F);
  EXPECT_FALSE(std::signbit(gradient));
}

}  // namespace
}  // namespace cp_pool
