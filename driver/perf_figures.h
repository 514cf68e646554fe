// Rates and efficiency of a step, worked out from its times and its case.
#pragma once

#include <cstdint>
#include <optional>

#include "cases/case.h"
#include "cases/fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

struct PerfFigures : protocol::PerfResult {  // bytes_sent: also set if the worker did not count them
  double tflops = 0;        // 1e12 floating point operations per second of one rank, counting visible pairs only
  double gbytes_per_s = 0;  // bytes_sent in 1e9 bytes per second
  std::optional<double> efficiency = std::nullopt;  // one_rank_ms / (ranks * ms); none if one_rank_ms was not measured
  // ms() of the same problem in the run that this one is compared with
  std::optional<double> baseline_ms = std::nullopt;

  // Median over the timed steps of the time of the slowest rank.
  [[nodiscard]] double ms() const { return step_ms.median; }
  [[nodiscard]] std::optional<double> ratio() const;  // ms / baseline_ms

  static constexpr auto fields() {
    return FieldList{field("ms", [](auto& of) -> auto& { return of.step_ms.median; }),
                     field("min_ms", [](auto& of) -> auto& { return of.step_ms.min; }),
                     field("max_ms", [](auto& of) -> auto& { return of.step_ms.max; }),
                     field("warmup", [](auto& of) -> auto& { return of.request.warmup; }),
                     field("iterations", [](auto& of) -> auto& { return of.request.iterations; }),
                     field("graph", [](auto& of) -> auto& { return of.request.graph; }),
                     field("tflops", &PerfFigures::tflops),
                     field("gbytes_per_s", &PerfFigures::gbytes_per_s),
                     field("efficiency", &PerfFigures::efficiency)} +
           StepMeasurements::fields() +
           FieldList{field("baseline_ms", &PerfFigures::baseline_ms), field("ratio", &PerfFigures::ratio),
                     field("ranks", &PerfFigures::ranks)};
  }
};
// Like the overloads in worker/protocol/messages.h.
void expect_valid(const PerfFigures& figures);

// Counts the operations that `cp-pool explain` names (case_shape.h). Bytes are those that the worker counted, or those
// that `cp-pool explain` names if it did not count them.
PerfFigures perf_figures(const Case& c, const protocol::PerfResult& measured);

}  // namespace cp_pool
