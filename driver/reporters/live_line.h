// The line at the bottom of a terminal that shows the progress of the run.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "driver/events.h"

namespace cp_pool {

struct LiveState {
  std::size_t expanded = 0;  // 0: nobody knows, as in a search
  std::array<std::size_t, kCaseOutcomes> counts{};
  double elapsed_s = 0;   // since the first case was sent
  std::string running;    // the ID of the case that has been running longest, or what is waited for before there is one
  double running_s = 0;   // for how long
  std::string phase;      // of that case; empty: not known
  bool stopping = false;  // no further case is started
};

// The number of cases that have ended, without those that were never started.
std::size_t cases_done(const std::array<std::size_t, kCaseOutcomes>& counts);

// At most `columns` wide: a bar and finished/expanded (or the number of cases alone, if none is expanded), the outcomes
// that are not zero, rate, ETA, and the running case with the time it has taken, from a second on, and its phase. What
// does not fit goes in this order: the bar becomes shorter and goes, the rate goes, the ID is cut in the middle. No
// control characters, no newline.
std::string live_line(const LiveState& state, std::size_t columns);

}  // namespace cp_pool
