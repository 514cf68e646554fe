#include "driver/report/pictures/timeline_bars.h"

#include <algorithm>

#include <fmt/format.h>

#include "driver/report/pictures/svg.h"
#include "driver/report/text_format.h"
#include "driver/report/xml_nodes.h"

namespace cp_pool {

namespace {

constexpr std::size_t kHintLetters = 160;

}  // namespace

void TimelineBar::add(const TimelineCase& c, double from, double to) {
  begin = cases == 0 ? from : std::min(begin, from);
  end = cases == 0 ? to : std::max(end, to);
  ++cases;
  ++by_urgency.at(static_cast<std::size_t>(c.urgency));
  ++counts.at(static_cast<std::size_t>(c.outcome));
  if (shown == nullptr || c.urgency > shown->urgency) shown = &c;
}

std::string TimelineBar::hint() const {
  std::string one =
      fmt::format("{}: {}, {}", cut_middle(shown->name, kHintLetters), shown->word, format_duration(shown->duration));
  if (cases == 1) return one;
  std::string by_outcome;
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    const std::size_t count = counts.at(static_cast<std::size_t>(outcome));
    if (count > 0) by_outcome += fmt::format("{}{} {}", by_outcome.empty() ? "" : ", ", count, name);
  }
  return fmt::format("{} cases: {}. {}", cases, by_outcome, one);
}

std::vector<TimelineBar> timeline_bars(const std::vector<const TimelineCase*>& cases, const TimeAxis& axis,
                                       double least) {
  std::vector<TimelineBar> bars;
  for (const TimelineCase* const c : cases) {
    const double from = axis.x(c->begin);
    const double to = axis.x(c->end);
    if (bars.empty() || to - bars.back().begin > least) bars.emplace_back();
    bars.back().add(*c, from, to);
  }
  return bars;
}

void append_bar(pugi::xml_node parent, const TimelineBar& bar, double left, double top, double height,
                const std::string& hatch, const std::string& hint) {
  constexpr double kLeastPart = 4;
  constexpr auto kOther = static_cast<std::size_t>(Urgency::other);
  constexpr auto kBad = static_cast<std::size_t>(Urgency::bad);
  pugi::xml_node group = parent.append_child("g");
  if (!hint.empty()) append_hint(group, hint);
  const auto kinds = std::ranges::count_if(bar.by_urgency, [](std::size_t cases) { return cases > 0; });
  const double shared = height - kLeastPart * static_cast<double>(kinds);
  double bottom = top + height;
  for (std::size_t kind = 0; kind < kOutcomeFills.size(); ++kind) {
    if (bar.by_urgency.at(kind) == 0) continue;
    double part = height;
    if (kinds > 1) {
      part = kLeastPart + shared * static_cast<double>(bar.by_urgency.at(kind)) / static_cast<double>(bar.cases);
    } else if (kind == kOther) {
      part = height / 2;
    }
    const double drawn = kind == kBad ? part + kBarStandsOut : part;
    const SvgBox box{
        .x = left + bar.begin, .y = bottom - drawn, .width = std::max(bar.end - bar.begin, 1.0), .height = drawn};
    append_rect(group, box, fmt::format("{} case", kOutcomeFills.at(kind)));
    if (kind == kBad) set(append_rect(group, box, ""), "fill", hatch);
    bottom -= part;
  }
}

}  // namespace cp_pool
