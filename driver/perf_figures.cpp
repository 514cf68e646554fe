#include "driver/perf_figures.h"

#include "cases/lengths.h"
#include "driver/case_shape.h"

namespace cp_pool {

namespace {

std::int64_t expected_bytes(const Case& c, const SequenceLengths& lengths) {
  const Traffic traffic = traffic_of(c, lengths);
  return traffic.forward + traffic.backward;
}

}  // namespace

std::optional<double> PerfFigures::ratio() const {
  return baseline_ms && *baseline_ms > 0 ? std::optional(ms() / *baseline_ms) : std::nullopt;
}

void expect_valid(const PerfFigures& figures) {
  expect_valid(static_cast<const protocol::PerfResult&>(figures));
  protocol::expect_valid(figures.step_ms);
}

PerfFigures perf_figures(const Case& c, const protocol::PerfResult& measured) {
  const SequenceLengths lengths = resolve_lengths(c);
  const auto ranks = static_cast<double>(c.cp_size);
  double flops = 0;
  for (int rank = 0; rank < c.cp_size; ++rank) {
    const Compute compute = compute_of(c, lengths, rank);
    flops += compute.forward_flops(c) + (c.training ? compute.backward_flops(c) : 0);
  }

  PerfFigures out{measured};
  const double seconds = out.ms() / 1e3;
  out.tflops = flops / ranks / seconds / 1e12;
  if (!out.bytes_sent) out.bytes_sent = expected_bytes(c, lengths);
  out.gbytes_per_s = static_cast<double>(*out.bytes_sent) / seconds / 1e9;
  if (measured.one_rank_ms && out.ms() > 0) out.efficiency = measured.one_rank_ms->median / (ranks * out.ms());
  return out;
}

}  // namespace cp_pool
