#include "driver/report/pictures/time_axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "driver/report/pictures/svg.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr double kSecond = 1000;

// Returns the spans sorted, and joined where no more than `gap` lies between them.
std::vector<TimeSpan> joined(std::vector<TimeSpan> spans, double gap) {
  std::ranges::sort(spans, {}, &TimeSpan::begin);
  std::vector<TimeSpan> out;
  for (const TimeSpan& span : spans) {
    if (!out.empty() && span.begin - out.back().end <= gap) {
      out.back().end = std::max(out.back().end, span.end);
    } else {
      out.push_back(span);
    }
  }
  return out;
}

double total(const std::vector<TimeSpan>& spans) {
  double sum = 0;
  for (const TimeSpan& span : spans) sum += span.end - span.begin;
  return sum;
}

// Returns the smallest round number of milliseconds that is at least this large.
double round_step(double least_ms) {
  constexpr std::array kSteps{1.0, 2.0, 5.0,  10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3,  2e3,  5e3,  1e4,  2e4,
                              3e4, 6e4, 12e4, 3e5,  6e5,  9e5,  18e5,  36e5,  72e5,  18e6, 36e6, 54e6, 108e6};
  constexpr double kDay = 86'400 * kSecond;
  const auto* const step = std::ranges::lower_bound(kSteps, least_ms);
  return step != kSteps.end() ? *step : std::ceil(least_ms / kDay) * kDay;
}

}  // namespace

TimeAxis::TimeAxis(std::vector<TimeSpan> shown, double width) {
  constexpr double kShort = 0.1;  // as a part of the time that is shown
  std::vector<TimeSpan> spans = joined(std::move(shown), 0);
  const double longest_gap = std::max(kSecond, kShort * total(spans));
  spans = joined(std::move(spans), longest_gap);
  const double cut_width = spans.empty() ? 0 : kCutWidth * static_cast<double>(spans.size() - 1);
  per_ms_ = std::max(0.0, width - cut_width) / std::max(total(spans), 1.0);
  for (const TimeSpan& span : spans) {
    parts_.push_back({.span = span, .x = parts_.empty() ? 0 : end_x(parts_.back()) + kCutWidth});
  }
}

double TimeAxis::x(double ms) const {
  if (parts_.empty()) return 0;
  const auto next = std::ranges::find_if(parts_, [ms](const Part& part) { return ms <= part.span.end; });
  if (next == parts_.end()) return end_x(parts_.back());
  if (ms >= next->span.begin) return next->x + (ms - next->span.begin) * per_ms_;
  return next == parts_.begin() ? next->x : next->x - kCutWidth / 2;
}

std::vector<TimeAxis::Cut> TimeAxis::cuts() const {
  std::vector<Cut> out;
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    out.push_back({.x = parts_[i].x - kCutWidth / 2, .ms = parts_[i].span.begin - parts_[i - 1].span.end});
  }
  return out;
}

std::vector<TimeAxis::Tick> TimeAxis::ticks(double least_distance) const {
  std::vector<Tick> out;
  if (per_ms_ <= 0) return out;
  const double step = round_step(least_distance / per_ms_);
  for (const Part& part : parts_) {
    const double first = std::ceil(part.span.begin / step) * step;
    // The steps are counted, because adding a step to a huge number from a foreign worker may not change it.
    const double steps = std::floor((part.span.end - first) / step);
    for (int i = 0; i <= static_cast<int>(steps); ++i) {
      const double ms = first + i * step;
      const double at = x(ms);
      if (!out.empty() && at - out.back().x < least_distance) continue;
      out.push_back({.x = at, .text = ms > 0 ? format_duration(ms) : "0"});
    }
  }
  return out;
}

void append_time(pugi::xml_node svg, const TimeAxis& axis, double left, double bottom) {
  constexpr double kTickDistance = 100;
  constexpr double kBaseLine = 11;
  constexpr double kTop = kBaseLine + 4;
  for (const TimeAxis::Tick& tick : axis.ticks(kTickDistance)) {
    append_path(svg, line_data(left + tick.x, kTop, left + tick.x, bottom), "thin");
    append_label(svg, left + tick.x, kBaseLine, tick.text, "faint");
  }
  for (const TimeAxis::Cut& cut : axis.cuts()) {
    const double middle = left + cut.x;
    const SvgBox box{
        .x = middle - TimeAxis::kCutWidth / 2, .y = kTop, .width = TimeAxis::kCutWidth, .height = bottom - kTop};
    append_hint(append_rect(svg, box, "fill-padding"),
                fmt::format("{} without a pool are left out", format_duration(cut.ms)));
    append_label(svg, middle, bottom - 4, "//", "middle");
  }
}

}  // namespace cp_pool
