#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "driver/core/mapped.h"
#include "driver/report/html_document.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/pictures/svg.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostStripCells = 512;  // of a strip; neighbours in a longer strip are joined
constexpr double kStripHeight = 36;           // units, and pixels
constexpr double kDecadesBelow = 2;           // shown below the bound; smaller values have no bar
constexpr double kMostDecadesAbove = 6;

bool is_off(double ratio) {
  return ratio >= ErrorStrip::kOffTheScale;
}

// Joins groups of `group` cells, each into the largest of them.
std::vector<double> folded(std::span<const double> ratios, std::size_t group) {
  std::vector<double> out;
  for (std::size_t begin = 0; begin < ratios.size(); begin += group) {
    out.push_back(std::ranges::max(ratios.subspan(begin, std::min(group, ratios.size() - begin))));
  }
  return out;
}

// A scale of whole decades, from kDecadesBelow below the bound up to the largest value of all strips.
class StripScale {
 public:
  explicit StripScale(const std::vector<ErrorStrip>& strips) {
    for (const ErrorStrip& strip : strips) {
      for (const auto* ratios : {&strip.by_row, &strip.by_head}) {
        for (const double ratio : *ratios) {
          if (!is_off(ratio) && ratio > 0) above_ = std::max(above_, std::ceil(std::log10(ratio)));
        }
      }
    }
    above_ = std::min(above_, kMostDecadesAbove);
  }
  [[nodiscard]] double top() const { return std::pow(10, above_); }
  [[nodiscard]] double bottom() const { return std::pow(10, -kDecadesBelow); }
  // Returns the height of a bar in whole units. A value beyond its bound is at least one unit above the line.
  [[nodiscard]] double height_of(double ratio) const {
    if (is_off(ratio)) return kStripHeight;
    if (ratio <= bottom()) return 0;
    const double height = std::round(kStripHeight * (kDecadesBelow + std::log10(ratio)) / (kDecadesBelow + above_));
    return std::clamp(height, ratio > 1 ? line() + 1 : 0, ratio > 1 ? kStripHeight : line());
  }
  // Returns the height of the bound's line.
  [[nodiscard]] double line() const { return std::round(kStripHeight * kDecadesBelow / (kDecadesBelow + above_)); }

 private:
  double above_ = 1;
};

// The colours of bars: within the bound, up to ten times the bound, beyond that, and off the scale.
constexpr std::array<std::string_view, 4> kFills{"fill-calm", "fill-warm", "fill-bad", "fill-ink"};

std::size_t heat_of(double ratio) {
  constexpr double kFar = 10;
  if (is_off(ratio)) return 3;
  return ratio > kFar ? 2 : ratio > 1 ? 1 : 0;
}

std::string ratio_words(double ratio) {
  return is_off(ratio) ? "no bound, and wrong" : format_figure(ratio);
}

std::string rows_words(const ErrorStrip& strip, std::size_t cell) {
  const std::int64_t first = static_cast<std::int64_t>(cell) * strip.rows_per_cell;
  if (strip.rows_per_cell <= 1) return fmt::format("row {}", first);
  return fmt::format("rows {} to {}", first, first + strip.rows_per_cell - 1);
}

std::size_t worst_of(const std::vector<double>& ratios) {
  return static_cast<std::size_t>(std::ranges::max_element(ratios) - ratios.begin());
}

std::size_t beyond(const std::vector<double>& ratios) {
  return static_cast<std::size_t>(std::ranges::count_if(ratios, [](double ratio) { return ratio > 1; }));
}

// Draws neighbours of one height and colour as one bar.
void append_bars(pugi::xml_node svg, const std::vector<double>& ratios, const StripScale& scale) {
  std::array<std::string, kFills.size()> data;
  const auto alike = [&](double a, double b) {
    return scale.height_of(a) == scale.height_of(b) && heat_of(a) == heat_of(b);
  };
  for (const auto& [begin, end] : stretches(ratios, alike)) {
    const double height = scale.height_of(ratios[begin]);
    if (height <= 0) continue;
    data.at(heat_of(ratios[begin])) +=
        fmt::format("M{} {}V{}H{}V{}z", begin, kStripHeight, kStripHeight - height, end, kStripHeight);
  }
  for (std::size_t heat = 0; heat < kFills.size(); ++heat) {
    if (!data.at(heat).empty()) append_path(svg, data.at(heat), std::string{kFills.at(heat)});
  }
}

// The page stretches this picture to its place, so it holds no text.
void append_strip(pugi::xml_node parent, const std::vector<double>& ratios, const std::vector<std::int64_t>& borders,
                  const StripScale& scale, const std::string& title) {
  if (ratios.empty()) {
    parent.append_child("div");
    return;
  }
  const std::size_t group = (ratios.size() + kMostStripCells - 1) / kMostStripCells;
  const std::vector<double> cells = folded(ratios, group);
  const std::string view = fmt::format("0 0 {} {}", cells.size(), kStripHeight);
  pugi::xml_node svg =
      append(parent, "svg", {{"class", "strip"}, {"viewBox", view}, {"preserveAspectRatio", "none"}, {"role", "img"}});
  append_text(svg, "title", title);
  append_bars(svg, cells, scale);
  std::string lines;
  for (const std::int64_t border : borders) {
    lines +=
        fmt::format("M{} 0V{}", svg_number(static_cast<double>(border) / static_cast<double>(group)), kStripHeight);
  }
  if (!lines.empty()) append_path(svg, lines, "thin");
  const double bound = kStripHeight - scale.line();
  append_path(svg, fmt::format("M0 {}H{}", bound, cells.size()), "edge dashed");
}

void append_strip_row(pugi::xml_node grid, const ErrorStrip& strip, const StripScale& scale) {
  const std::string name = fmt::format("{} rank {}", strip.tensor, strip.rank);
  append_text(grid, "span", name);
  const std::size_t worst = worst_of(strip.by_row);
  const std::string rows = fmt::format("{} by rows: largest error / bound {} at {}; {} of {} beyond the bound", name,
                                       ratio_words(strip.by_row[worst]), rows_words(strip, worst), beyond(strip.by_row),
                                       count_of(strip.by_row.size(), "cell"));
  append_strip(grid, strip.by_row, strip.borders, scale, rows);
  const std::string heads = fmt::format("{} by heads: {} of {} beyond the bound", name, beyond(strip.by_head),
                                        count_of(strip.by_head.size(), "head"));
  append_strip(grid, strip.by_head, {}, scale, heads);
}

void append_worst_cells(pugi::xml_node parent, const std::vector<ErrorStrip>& strips) {
  pugi::xml_node table = append_table(
      parent, {"tensor", "rank", "largest error / bound", "at", "cells beyond", "worst head", "heads beyond"});
  for (const ErrorStrip& strip : strips) {
    pugi::xml_node row = table.append_child("tr");
    append_cell(row, strip.tensor);
    append_cell(row, std::to_string(strip.rank), "number");
    append_cell(row, ratio_words(strip.by_row[worst_of(strip.by_row)]), "number");
    append_cell(row, rows_words(strip, worst_of(strip.by_row)));
    append_cell(row, fmt::format("{} of {}", beyond(strip.by_row), strip.by_row.size()), "number");
    append_cell(row, strip.by_head.empty() ? "" : std::to_string(worst_of(strip.by_head)), "number");
    append_cell(row, fmt::format("{} of {}", beyond(strip.by_head), strip.by_head.size()), "number");
  }
}

}  // namespace

void append_strips(pugi::xml_node parent, const std::vector<ErrorStrip>& strips, const std::string& id) {
  if (strips.empty()) return;
  const StripScale scale(strips);
  pugi::xml_node figure = append(parent, "figure", {{"id", id}});
  append_text(figure, "figcaption",
              fmt::format("Error / bound of tensors that are wrong: left over the rank's rows in packed order, right "
                          "over its heads. The scale is logarithmic, from {} to {}; the dashed line is the bound, and "
                          "upright lines are borders of chunks and sequences.",
                          format_figure(scale.bottom()), format_figure(scale.top())));
  pugi::xml_node grid = append(figure, "div", {{"class", "strips"}});
  for (const ErrorStrip& strip : strips) append_strip_row(grid, strip, scale);
  append_worst_cells(figure, strips);
}

}  // namespace cp_pool
