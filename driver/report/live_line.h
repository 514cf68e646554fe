// The lines at the bottom of a terminal with the running cases and the progress of the run.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

struct LiveState {
  std::size_t expanded = 0;  // number of cases; 0 if unknown, as in a search
  OutcomeCounts counts{};
  OutcomeCounts expected{};                     // of these, failures that were expected
  double elapsed_s = 0;                         // since the first case was sent
  std::optional<double> left_s = std::nullopt;  // remaining time as estimated from earlier runs
  bool stopping = false;                        // no further case is started
};

// A case that runs, or a pool that starts.
struct LiveItem {
  std::string name;
  double seconds = 0;  // its age
  std::string phase;   // the phase of a case; empty if unknown
};

// Returns the number of cases that have ended, without those that were never started.
std::size_t cases_done(const std::array<std::size_t, kCaseOutcomes>& counts);

// Returns a line of at most `columns` columns: a bar and finished/expanded (or the number of cases, if the total is
// unknown), the outcomes that are not zero, rate and ETA. If it does not fit, the bar becomes shorter and disappears,
// then the rate. It has no control characters and no newline.
std::string live_line(const LiveState& state, std::size_t columns);

// Returns "   0:12 quick/causal/p2p/cp2/bshd/fp32 (forward)". A name that does not fit is cut in its middle.
std::string live_item(const LiveItem& item, std::size_t columns);

// Returns a line for each item and then that of the run, at most `rows` in all. If there are more items, it shows the
// first of them and the number of the others.
std::vector<std::string> live_lines(const LiveState& state, const std::vector<LiveItem>& items, std::size_t columns,
                                    std::size_t rows);

}  // namespace cp_pool
