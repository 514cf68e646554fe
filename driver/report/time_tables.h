// Tables of times: how the time of a run was spent (`cp-pool run --timings`), and the times of steps (`cp-pool run
// --mode perf`).
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/core/events.h"
#include "driver/log/run_report.h"

namespace cp_pool {

// Returns the q-quantile (0 < q <= 1) by nearest rank. `values` must not be empty.
double quantile(std::vector<double> values, double q);

class FirstUses {
 public:
  // Whether the case is such a first use. To be called for each case that ran, in the order in which they ended.
  bool add(const CaseFinished& event) {
    return event.pool && seen_.emplace(to_string(*event.pool), event.backend).second;
  }

 private:
  std::set<std::pair<std::string, std::string>> seen_;  // pool, backend
};

// Times of several cases.
struct Durations {
  std::vector<double> all;
  std::vector<double> later;  // without first uses

  void add(double milliseconds, bool first_use) {
    all.push_back(milliseconds);
    if (!first_use) later.push_back(milliseconds);
  }
  // Of the later ones, if there are any.
  [[nodiscard]] double p50() const { return quantile(later.empty() ? all : later, 0.5); }
};

// Returns a number that is smaller for an earlier phase of a case. Phases that are not those of attention, such as
// `call`, come before the barrier that closes the case.
std::size_t place_of_phase(std::string_view phase);

// Returns a row for each world size and phase (min, p50 without first uses, p95, max; "case" is the whole case as the
// driver measured it), then the slowest 10 cases, in which first uses are marked. Each line ends with a newline; the
// text is empty if no case ran.
std::string timings_text(const RunReport& run);

// Returns "12.3 ms, 345 TFLOP/s, 67 GB/s, efficiency 0.89".
std::string perf_summary(const PerfFigures& figures);

// Returns a row for each case with times, in the order in which they finished. A row has the slowest rank's median, min
// and max in ms, TFLOP/s and GB/s per rank, one rank's time and the efficiency; with a baseline also its time and the
// ratio of the new time to it. Lines below say why efficiencies are missing, and compare the sums. Each line ends with
// a newline; the text is empty if there are no times.
std::string perf_text(const RunReport& run);

}  // namespace cp_pool
