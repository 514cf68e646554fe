// Cases as bars of a timeline.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <pugixml.hpp>

#include "driver/report/pictures/time_axis.h"
#include "driver/report/pictures/timeline.h"

namespace cp_pool {

// A bar of cases that are drawn as one.
struct TimelineBar {
  double begin = 0;  // units of the axis
  double end = 0;
  std::size_t cases = 0;
  std::array<std::size_t, 3> by_urgency{};
  OutcomeCounts counts{};
  const TimelineCase* shown = nullptr;  // the first case of the highest urgency

  void add(const TimelineCase& c, double from, double to);
  // Returns "ID: pass, 12 ms", or "12 cases: 11 pass, 1 fail. ID: fail, 15 ms".
  [[nodiscard]] std::string hint() const;
};

// Returns the bars of cases that ran one after another. A case joins the bar before it as long as the bar is not wider
// than `least` units. The cases must live as long as the bars.
std::vector<TimelineBar> timeline_bars(const std::vector<const TimelineCase*>& cases, const TimeAxis& axis,
                                       double least);

// Colours of bars, by Urgency.
inline constexpr std::array<std::string_view, 3> kOutcomeFills{"fill-pass", "fill-other partly", "fill-bad"};

// Draws the bar from `top` on, `height` units high, shifted to the right by `left`. Passes are at the bottom, other
// outcomes above them, and bad ones stand out on top under the texture `hatch`. Each part is high enough to be seen. A
// bar with neither passes nor failures is half as high. `hint` is its tooltip; an empty one is left out.
void append_bar(pugi::xml_node parent, const TimelineBar& bar, double left, double top, double height,
                const std::string& hatch, const std::string& hint);
inline constexpr double kBarStandsOut = 5;

}  // namespace cp_pool
