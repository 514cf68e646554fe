#include "driver/report/pictures/svg.h"

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "driver/core/figures.h"
#include "driver/core/mapped.h"
#include "driver/report/html_document.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr double kTextureSize = 6;

constexpr std::array kTextures{"M0 3H6", "M0 3H6M3 0V6", "M2.3 3H3.7"};  // path data of each Texture

void set_class(pugi::xml_node node, const std::string& kind) {
  if (!kind.empty()) set(node, "class", kind);
}

constexpr int kRankColors = 8;
constexpr double kRankBand = 14;

enum class RankAxis { across, down };

void append_rank_stretch(pugi::xml_node svg, RankAxis axis, const SvgBox& box, const std::vector<int>& ranks) {
  const std::string name = name_ranks(ranks);
  append_hint(append_rect(svg, box, rank_class(ranks.size() == 1 ? ranks.front() : -1) + " bordered"), name);
  const std::string number = name.substr(name.find(' ') + 1);
  constexpr double kLine = 9;
  constexpr double kBelowMiddle = 3.2;  // distance of the base line of small letters
  const double room = axis == RankAxis::across ? box.width : box.height;
  const bool upright = axis == RankAxis::down && label_width(number, true) > kRankBand;
  if (room < (axis == RankAxis::across || upright ? label_width(number, true) : kLine)) return;
  const double x = box.x + box.width / 2;
  const double y = box.y + box.height / 2;
  pugi::xml_node label = append_label(svg, x, y + kBelowMiddle, number, "small middle");
  if (upright) set(label, "transform", fmt::format("rotate(-90 {} {})", svg_number(x), svg_number(y)));
}

void append_rank_band(pugi::xml_node svg, RankAxis axis, const SvgBox& box, double cell,
                      const std::vector<std::vector<int>>& owners) {
  for (const auto& [begin, end] : stretches(owners, std::equal_to{})) {
    SvgBox stretch = box;
    const double from = cell * static_cast<double>(begin);
    const double length = cell * static_cast<double>(end - begin);
    (axis == RankAxis::across ? stretch.x : stretch.y) += from;
    (axis == RankAxis::across ? stretch.width : stretch.height) = length;
    if (!owners[begin].empty()) append_rank_stretch(svg, axis, stretch, owners[begin]);
  }
}

}  // namespace

std::string svg_number(double value) {
  constexpr double kHundredth = 100;
  return fmt::format("{:.8g}", std::round(value * kHundredth) / kHundredth);
}

pugi::xml_node append_svg(pugi::xml_node parent, const SvgFrame& frame) {
  const std::string width = svg_number(frame.width);
  const std::string height = svg_number(frame.height);
  pugi::xml_node svg = append(parent, "svg",
                              {{"id", frame.id},
                               {"class", frame.kind.empty() ? "picture" : "picture " + frame.kind},
                               {"viewBox", fmt::format("0 0 {} {}", width, height)},
                               {"width", width},
                               {"height", height},
                               {"role", "img"},
                               {"aria-labelledby", fmt::format("{0}-title {0}-desc", frame.id)}});
  set(append_text(svg, "title", frame.title), "id", frame.id + "-title");
  set(append_text(svg, "desc", frame.description), "id", frame.id + "-desc");
  return svg;
}

pugi::xml_node append_rect(pugi::xml_node parent, const SvgBox& box, const std::string& kind) {
  pugi::xml_node rect = append(parent, "rect",
                               {{"x", svg_number(box.x)},
                                {"y", svg_number(box.y)},
                                {"width", svg_number(box.width)},
                                {"height", svg_number(box.height)}});
  set_class(rect, kind);
  return rect;
}

pugi::xml_node append_path(pugi::xml_node parent, const std::string& data, const std::string& kind) {
  pugi::xml_node path = append(parent, "path", {{"d", data}});
  set_class(path, kind);
  return path;
}

std::string line_data(double x1, double y1, double x2, double y2) {
  return fmt::format("M{} {}L{} {}", svg_number(x1), svg_number(y1), svg_number(x2), svg_number(y2));
}

pugi::xml_node append_label(pugi::xml_node parent, double x, double y, const std::string& text,
                            const std::string& kind) {
  pugi::xml_node label = append_text(parent, "text", text);
  set(label, "x", svg_number(x));
  set(label, "y", svg_number(y));
  set_class(label, kind);
  return label;
}

double label_width(const std::string& text, bool small) {
  constexpr double kLetter = 6.5;
  constexpr double kSmallLetter = 5.4;
  return static_cast<double>(width_of(text)) * (small ? kSmallLetter : kLetter);
}

void append_hint(pugi::xml_node part, const std::string& text) {
  append_text(part, "title", text);
}

std::string append_texture(pugi::xml_node svg, const std::string& id, Texture texture, const std::string& kind,
                           double unit) {
  const std::string size = svg_number(kTextureSize);
  const std::string transform = fmt::format("scale({:.4g}) rotate(-45)", unit);
  append_path(append(svg, "pattern",
                     {{"id", id},
                      {"width", size},
                      {"height", size},
                      {"patternUnits", "userSpaceOnUse"},
                      {"patternTransform", transform}}),
              kTextures.at(static_cast<std::size_t>(texture)), "texture " + kind);
  return fmt::format("url(#{})", id);
}

std::string cells_data(const std::vector<std::string>& rows, char character) {
  std::string data;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const auto& [begin, end] : stretches(rows[row], std::equal_to{})) {
      if (rows[row][begin] == character) data += fmt::format("M{0} {1}H{2}V{3}H{0}z", begin, row, end, row + 1);
    }
  }
  return data;
}

std::string rank_class(int rank) {
  if (rank < 0) return "every-rank";
  return fmt::format("r{}", rank % kRankColors);
}

void append_rank_axes(pugi::xml_node svg, const SvgBox& plot, double cell,
                      const std::vector<std::vector<int>>& q_owners, const std::vector<std::vector<int>>& kv_owners) {
  constexpr double kBaseLine = 10;
  constexpr double kFromPlot = kRankBand + 2;
  append_label(svg, plot.x, plot.y - kRankAxis + kBaseLine, "keys, by the rank that owns them");
  const double x = plot.x - kRankAxis + kBaseLine;
  const double middle = plot.y + plot.height / 2;
  pugi::xml_node name = append_label(svg, x, middle, "queries", "middle");
  set(name, "transform", fmt::format("rotate(-90 {} {})", svg_number(x), svg_number(middle)));
  append_rank_band(svg, RankAxis::across,
                   {.x = plot.x, .y = plot.y - kFromPlot, .width = plot.width, .height = kRankBand}, cell, kv_owners);
  append_rank_band(svg, RankAxis::down,
                   {.x = plot.x - kFromPlot, .y = plot.y, .width = kRankBand, .height = plot.height}, cell, q_owners);
}

}  // namespace cp_pool
