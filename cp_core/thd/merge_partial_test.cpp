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

TEST(SinkGradient, IsOfAllRowsHoweverManyRangesTheyAre) {
  constexpr std::int64_t kRanges = 2500;
  std::vector<RowRange> rows;
  for (std::int64_t i = 0; i < kRanges; ++i) rows.push_back({.row = 2 * i, .count = 1});
  const at::Tensor ones = at::full({1, 2 * kRanges}, 1.0, at::kFloat);
  // Each row named adds exp(1 - 1) * 1.
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
