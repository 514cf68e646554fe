// Maps moments to places in a picture. Long gaps in which nothing happened are cut out.
#pragma once

#include <string>
#include <vector>

#include <pugixml.hpp>

namespace cp_pool {

struct TimeSpan {  // milliseconds
  double begin = 0;
  double end = 0;
};

class TimeAxis {
 public:
  // `shown` are the spans that must not be cut, in any order. `width` is the distance from the earliest to the latest
  // moment, in units.
  TimeAxis(std::vector<TimeSpan> shown, double width);

  // Returns the place of a moment. Moments before the first and after the last span are at the ends, and moments in a
  // cut are in its middle.
  [[nodiscard]] double x(double ms) const;

  struct Cut {
    double x = 0;  // the middle of the cut, which is kCutWidth units wide
    double ms = 0;
  };
  static constexpr double kCutWidth = 14;
  [[nodiscard]] std::vector<Cut> cuts() const;

  struct Tick {
    double x = 0;
    std::string text;
  };
  // Returns ticks at round moments, at least `least_distance` units apart.
  [[nodiscard]] std::vector<Tick> ticks(double least_distance) const;

 private:
  struct Part {
    TimeSpan span;
    double x = 0;
  };
  [[nodiscard]] double end_x(const Part& part) const { return part.x + (part.span.end - part.span.begin) * per_ms_; }

  std::vector<Part> parts_;  // in order, with cuts between them
  double per_ms_ = 0;        // units per millisecond
};

// Draws the ticks and cuts of an axis that begins at x = `left`, from the top of the picture down to `bottom`.
void append_time(pugi::xml_node svg, const TimeAxis& axis, double left, double bottom);

}  // namespace cp_pool
