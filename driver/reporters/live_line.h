// The line at the bottom of a terminal that shows where the run is.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "driver/events.h"

namespace cp_pool {

struct LiveState {
  std::size_t expanded = 0;
  std::array<std::size_t, kCaseOutcomes> counts{};
  double elapsed_s = 0;  // since the first case was sent
  std::string running;   // the ID of the case that has been running longest
  double running_s = 0;  // for how long
};

// At most `columns` wide: a bar, finished/expanded, the outcomes that are not zero, rate, ETA, and the running case
// with the time it has taken, from a second on. The ID is cut first. No control characters, no newline.
std::string live_line(const LiveState& state, std::size_t columns);

}  // namespace cp_pool
