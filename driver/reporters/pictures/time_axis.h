// Where a moment stands in a picture. Long times in which nothing was there are cut out.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

struct TimeSpan {  // milliseconds
  double begin = 0;
  double end = 0;
};

class TimeAxis {
 public:
  // shown: what must not be cut, in any order. width: from the earliest to the latest moment, in units.
  TimeAxis(std::vector<TimeSpan> shown, double width);

  // Moments before the first and after the last stand at the ends, and those of a cut in its middle.
  [[nodiscard]] double x(double ms) const;

  struct Cut {
    double x = 0;  // the middle of kCutWidth units
    double ms = 0;
  };
  static constexpr double kCutWidth = 14;
  [[nodiscard]] std::vector<Cut> cuts() const;

  struct Tick {
    double x = 0;
    std::string text;
  };
  // Round moments, not closer than so many units.
  [[nodiscard]] std::vector<Tick> ticks(double least_distance) const;

 private:
  struct Part {
    TimeSpan span;
    double x = 0;
  };
  [[nodiscard]] double end_x(const Part& part) const { return part.x + (part.span.end - part.span.begin) * per_ms_; }

  std::vector<Part> parts_;  // in order, with cuts between them
  double per_ms_ = 0;        // units
};

}  // namespace cp_pool
