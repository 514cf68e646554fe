// Rates and efficiency of a step, worked out from its times and its case.
#pragma once

#include <cstdint>
#include <optional>

#include "cases/case.h"
#include "cases/fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

struct PerfFigures {
  protocol::PerfResult measured;
  double tflops = 0;            // 1e12 floating point operations per second of one rank, counting visible pairs only
  std::int64_t bytes_sent = 0;  // in one step, by the rank that sends most
  double gbytes_per_s = 0;      // bytes_sent in 1e9 bytes per second
  std::optional<double> efficiency;   // one_rank_ms / (ranks * ms); none if one_rank_ms was not measured
  std::optional<double> baseline_ms;  // ms() of the same problem in the run that this one is compared with

  // Median over the timed steps of the time of the slowest rank.
  [[nodiscard]] double ms() const { return measured.step_ms.median; }
  [[nodiscard]] std::optional<double> ratio() const;  // ms / baseline_ms

  static constexpr auto fields() {
    return FieldList{field("ms", [](auto& of) -> auto& { return of.measured.step_ms.median; }),
                     field("min_ms", [](auto& of) -> auto& { return of.measured.step_ms.min; }),
                     field("max_ms", [](auto& of) -> auto& { return of.measured.step_ms.max; }),
                     field("warmup", [](auto& of) -> auto& { return of.measured.request.warmup; }),
                     field("iterations", [](auto& of) -> auto& { return of.measured.request.iterations; }),
                     field("graph", [](auto& of) -> auto& { return of.measured.request.graph; }),
                     field("tflops", &PerfFigures::tflops),
                     field("bytes_sent", &PerfFigures::bytes_sent),
                     field("gbytes_per_s", &PerfFigures::gbytes_per_s),
                     field("efficiency", &PerfFigures::efficiency),
                     field("one_rank_ms", [](auto& of) -> auto& { return of.measured.one_rank_ms; }),
                     field("one_rank_reason", [](auto& of) -> auto& { return of.measured.one_rank_reason; }),
                     field("baseline_ms", &PerfFigures::baseline_ms),
                     field("ratio", &PerfFigures::ratio),
                     field("ranks", [](auto& of) -> auto& { return of.measured.ranks; })};
  }
};
// Like the overloads in worker/protocol/messages.h.
void expect_valid(const PerfFigures& figures);

// Counts the operations that `cp-pool explain` names (case_shape.h). Bytes are those that the worker counted, or those
// that `cp-pool explain` names if it did not count them.
PerfFigures perf_figures(const Case& c, const protocol::PerfResult& measured);

}  // namespace cp_pool
