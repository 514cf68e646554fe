#include "driver/reporters/pictures/rank_axes.h"

#include <cstddef>

#include <fmt/format.h>

#include "driver/reporters/xml_nodes.h"

namespace cp_pool {

namespace {

constexpr int kRankColors = 8;
constexpr double kRankBand = 14;

enum class RankAxis { across, down };

void append_rank_stretch(pugi::xml_node svg, RankAxis axis, const SvgBox& box, int rank) {
  append_hint(append_rect(svg, box, rank_class(rank) + " bordered"), fmt::format("rank {}", rank));
  const std::string number = std::to_string(rank);
  constexpr double kLine = 9;
  constexpr double kBelowMiddle = 3.2;  // distance of the base line of small letters
  const double room = axis == RankAxis::across ? box.width : box.height;
  if (room < (axis == RankAxis::across ? label_width(number, true) : kLine)) return;
  append_label(svg, box.x + box.width / 2, box.y + box.height / 2 + kBelowMiddle, number, "small middle");
}

void append_rank_band(pugi::xml_node svg, RankAxis axis, const SvgBox& box, double cell,
                      const std::vector<int>& ranks) {
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin;
    while (end < ranks.size() && ranks[end] == ranks[begin]) ++end;
    SvgBox stretch = box;
    const double from = cell * static_cast<double>(begin);
    const double length = cell * static_cast<double>(end - begin);
    (axis == RankAxis::across ? stretch.x : stretch.y) += from;
    (axis == RankAxis::across ? stretch.width : stretch.height) = length;
    if (ranks[begin] >= 0) append_rank_stretch(svg, axis, stretch, ranks[begin]);
    begin = end;
  }
}

}  // namespace

std::string rank_class(int rank) {
  if (rank < 0) return "every-rank";
  return fmt::format("r{}", rank % kRankColors);
}

void append_rank_axes(pugi::xml_node svg, const SvgBox& plot, double cell, const std::vector<int>& q_ranks,
                      const std::vector<int>& kv_ranks) {
  constexpr double kBaseLine = 10;
  constexpr double kFromPlot = kRankBand + 2;
  append_label(svg, plot.x, plot.y - kRankAxis + kBaseLine, "keys, by the rank that owns them");
  const double x = plot.x - kRankAxis + kBaseLine;
  const double middle = plot.y + plot.height / 2;
  pugi::xml_node name = append_label(svg, x, middle, "queries", "middle");
  set(name, "transform", fmt::format("rotate(-90 {} {})", svg_number(x), svg_number(middle)));
  append_rank_band(svg, RankAxis::across,
                   {.x = plot.x, .y = plot.y - kFromPlot, .width = plot.width, .height = kRankBand}, cell, kv_ranks);
  append_rank_band(svg, RankAxis::down,
                   {.x = plot.x - kFromPlot, .y = plot.y, .width = kRankBand, .height = plot.height}, cell, q_ranks);
}

}  // namespace cp_pool
