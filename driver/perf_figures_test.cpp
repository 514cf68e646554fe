#include "driver/perf_figures.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

protocol::PerfResult measured(double ms, std::optional<double> one_rank_ms) {
  protocol::PerfResult out;
  out.step_ms = {.median = ms, .min = ms / 2, .max = ms * 2};
  if (one_rank_ms) out.one_rank_ms = StepMs{.median = *one_rank_ms, .min = 0, .max = 1e9};
  return out;
}

// 2 sequences of 8 tokens, 4 heads of dimension 16, not causal.
Case dense_case() {
  Case c;
  c.batch = 2;
  c.seqlen_q = c.seqlen_kv = 8;
  c.heads = c.kv_heads = 4;
  c.head_dim_qk = c.head_dim_v = 16;
  c.cp_size = 2;
  c.dtype = DType::bf16;
  return c;
}

TEST(PerfFigures, CountTheOperationsOfVisiblePairs) {
  constexpr double kPairs = 2 * 8 * 8 * 4;
  constexpr double kSeconds = 2e-3;
  // Two products forward and five backward, of one multiply and one add each.
  const double of_a_rank = kPairs * (2 + 5) * 2 * 16 / 2;
  EXPECT_DOUBLE_EQ(perf_figures(dense_case(), measured(2, 3)).tflops, of_a_rank / kSeconds / 1e12);
  Case forward = dense_case();
  forward.training = false;
  EXPECT_DOUBLE_EQ(perf_figures(forward, measured(2, 3)).tflops, of_a_rank * 2 / 7 / kSeconds / 1e12);
}

TEST(PerfFigures, HaveTheBytesThatTheWorkerCounted) {
  for (const std::int64_t bytes : {0, 5000}) {
    protocol::PerfResult counted = measured(2, 3);
    counted.bytes_sent = bytes;
    const PerfFigures figures = perf_figures(dense_case(), counted);
    EXPECT_EQ(figures.bytes_sent, bytes);
    EXPECT_DOUBLE_EQ(figures.gbytes_per_s, static_cast<double>(bytes) / 2e-3 / 1e9);
  }
}

TEST(PerfFigures, ExpectTheBytesThatAWorkerDoesNotCount) {
  // Forward: K and V of 8 tokens. Backward: the other rank's gradients of them, in fp32.
  constexpr std::int64_t kNumbers = 2 * 8 * 4 * 16;
  const PerfFigures figures = perf_figures(dense_case(), measured(2, 3));
  EXPECT_EQ(figures.bytes_sent, kNumbers * 2 + kNumbers * 4);
  EXPECT_DOUBLE_EQ(figures.gbytes_per_s, static_cast<double>(*figures.bytes_sent) / 2e-3 / 1e9);
}

TEST(PerfFigures, EfficiencyIsTheShareOfTheTimeThatPerfectSharingWouldTake) {
  EXPECT_DOUBLE_EQ(*perf_figures(dense_case(), measured(2, 3)).efficiency, 0.75);
  EXPECT_FALSE(perf_figures(dense_case(), measured(2, std::nullopt)).efficiency);
}

TEST(PerfFigures, HaveNoRatioToATimeOfZero) {
  EXPECT_FALSE(perf_figures(dense_case(), measured(0, 3)).efficiency);
  PerfFigures figures = perf_figures(dense_case(), measured(2, 3));
  figures.baseline_ms = 0;
  EXPECT_FALSE(figures.ratio());
}

}  // namespace
}  // namespace cp_pool
