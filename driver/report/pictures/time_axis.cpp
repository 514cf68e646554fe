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

// Returns the spans sorted, and joined where they touch.
std::vector<TimeSpan> joined(std::vector<TimeSpan> spans) {
  std::ranges::sort(spans, {}, &TimeSpan::begin);
  std::vector<TimeSpan> out;
  for (const TimeSpan& span : spans) {
    if (!out.empty() && span.begin <= out.back().end) {
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
  constexpr std::array kDecimal{1.0, 2.0, 5.0};
  constexpr std::array kSexagesimal{1.0, 2.0, 5.0, 10.0, 15.0, 30.0};
  constexpr double kSixty = 60;
  for (double unit = 1; unit < kSecond * kSixty; unit *= 10) {
    for (const double factor : kDecimal) {
      if (const double step = unit * factor; step >= least_ms && step < kSecond * kSixty / 2) return step;
    }
  }
  for (double unit = kSecond; unit <= kSecond * kSixty * kSixty; unit *= kSixty) {
    for (const double factor : kSexagesimal) {
      if (const double step = unit * factor; step >= least_ms) return step;
    }
  }
  constexpr double kDay = 24 * kSixty * kSixty * kSecond;
  return std::ceil(least_ms / kDay) * kDay;
}

}  // namespace

TimeAxis::TimeAxis(std::vector<TimeSpan> shown, double width) {
  const std::vector<TimeSpan> spans = joined(std::move(shown));
  constexpr double kShort = 0.1;  // as a part of the time that is shown
  const double longest_gap = std::max(kSecond, kShort * total(spans));
  for (const TimeSpan& span : spans) {
    if (!parts_.empty() && span.begin - parts_.back().span.end <= longest_gap) {
      parts_.back().span.end = span.end;
    } else {
      parts_.push_back({.span = span});
    }
  }
  double drawn = 0;
  for (const Part& part : parts_) drawn += part.span.end - part.span.begin;
  const double cut_width = parts_.empty() ? 0 : kCutWidth * static_cast<double>(parts_.size() - 1);
  per_ms_ = std::max(0.0, width - cut_width) / std::max(drawn, 1.0);
  double x = 0;
  for (Part& part : parts_) {
    part.x = x;
    x = end_x(part) + kCutWidth;
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
