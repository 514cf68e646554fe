// The lines at the bottom of a terminal that show what runs, and the progress of the run.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

struct LiveState {
  std::size_t expanded = 0;  // 0: nobody knows, as in a search
  OutcomeCounts counts{};
  OutcomeCounts expected{};                     // of these: failures that were expected
  double elapsed_s = 0;                         // since the first case was sent
  std::optional<double> left_s = std::nullopt;  // that is still to go, as far as earlier runs tell
  bool stopping = false;                        // no further case is started
};

// A case that runs, or a pool that starts.
struct LiveItem {
  std::string name;
  double seconds = 0;  // for how long
  std::string phase;   // of a case; empty: not known
};

// The number of cases that have ended, without those that were never started.
std::size_t cases_done(const std::array<std::size_t, kCaseOutcomes>& counts);

// At most `columns` wide: a bar and finished/expanded (or the number of cases alone, if none is expanded), the outcomes
// that are not zero, rate and ETA. What does not fit goes in this order: the bar becomes shorter and goes, the rate
// goes. No control characters, no newline.
std::string live_line(const LiveState& state, std::size_t columns);

// "   0:12 quick/causal/p2p/cp2/bshd/fp32 (forward)". A name that does not fit lacks its middle.
std::string live_item(const LiveItem& item, std::size_t columns);

// A line for each item, then that of the run, `rows` in all at most: of more items the first, and how many more there
// are.
std::vector<std::string> live_lines(const LiveState& state, const std::vector<LiveItem>& items, std::size_t columns,
                                    std::size_t rows);

}  // namespace cp_pool
