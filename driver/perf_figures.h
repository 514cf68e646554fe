// Rates and efficiency of a step, from its times and its case.
#pragma once

#include <cstdint>
#include <optional>

#include "cases/case.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

struct PerfFigures {
  protocol::PerfResult measured;
  double ms = 0;                      // median over the timed steps of the slowest rank's time
  double tflops = 0;                  // 1e12 floating point operations of a rank per second: visible pairs alone
  std::int64_t bytes_sent = 0;        // in a step, by the rank that sends most
  double gbytes_per_s = 0;            // 1e9 of them per second
  std::optional<double> efficiency;   // one rank's time / (ranks * ms); none without one rank's time
  std::optional<double> baseline_ms;  // ms of the same problem in the run that this one is compared with

  [[nodiscard]] std::optional<double> ratio() const;  // ms / baseline_ms
};

// Operations are those that `cp-pool explain` names (case_shape.h); so are the bytes where the worker did not count
// them.
PerfFigures perf_figures(const Case& c, const protocol::PerfResult& measured);

}  // namespace cp_pool
