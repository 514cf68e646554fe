#include "driver/report/pictures/rank_axes.h"

#include <cstddef>

#include <fmt/format.h>

#include "driver/core/figures.h"
#include "driver/report/xml_nodes.h"

namespace cp_pool {

namespace {

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
  for (std::size_t begin = 0; begin < owners.size();) {
    std::size_t end = begin;
    while (end < owners.size() && owners[end] == owners[begin]) ++end;
    SvgBox stretch = box;
    const double from = cell * static_cast<double>(begin);
    const double length = cell * static_cast<double>(end - begin);
    (axis == RankAxis::across ? stretch.x : stretch.y) += from;
    (axis == RankAxis::across ? stretch.width : stretch.height) = length;
    if (!owners[begin].empty()) append_rank_stretch(svg, axis, stretch, owners[begin]);
    begin = end;
  }
}

}  // namespace

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
