#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "cases/diagnosis.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/pictures/svg.h"
#include "driver/report/xml_nodes.h"

namespace cp_pool {
namespace {

// All lengths are in units of the picture.
constexpr double kLongestDrawing = 330;
constexpr double kLargestBlock = 20;
constexpr double kDrawingMargin = kRankAxis;
constexpr double kDrawingKeyLine = 17;
constexpr double kLeastDrawing = 372;  // width that the legend needs
constexpr double kDrawingSwatch = 12;

// Returns where tile number `tile` of a side begins, in blocks. Replicated tokens are one block before the first tile.
double tile_begin(const std::vector<int>& ranks, int tile, int tiles) {
  const double first = !ranks.empty() && ranks.front() == CaseDrawing::kEveryRank ? 1 : 0;
  return first + (static_cast<double>(ranks.size()) - first) * tile / tiles;
}

std::string tile_lines(const CaseDrawing& drawing, int tiles) {
  std::string data;
  for (int tile = 0; tile <= tiles; ++tile) {
    data += fmt::format("M0 {}H{}", svg_number(tile_begin(drawing.q_ranks, tile, tiles)), drawing.kv_ranks.size());
    data += fmt::format("M{} 0V{}", svg_number(tile_begin(drawing.kv_ranks, tile, tiles)), drawing.q_ranks.size());
  }
  return data;
}

void append_blocks_of(pugi::xml_node svg, const std::string& area, const std::string& kind) {
  if (!area.empty()) append_path(svg, area, kind);
}

void append_blocks(pugi::xml_node svg, const CaseDrawing& drawing, double block, const std::string& id) {
  for (int rank : std::set<int>(drawing.q_ranks.begin(), drawing.q_ranks.end())) {
    std::vector<std::string> own = drawing.rows;
    for (std::size_t row = 0; row < own.size(); ++row) {
      if (drawing.q_ranks[row] != rank) own[row].clear();
    }
    append_blocks_of(svg, cells_data(own, '#'), rank_class(rank));
    append_blocks_of(svg, cells_data(own, '+'), rank_class(rank) + " partly");
  }
  const auto append_textured = [&](const std::string& area, const char* name, Texture texture) {
    if (area.empty()) return;
    set(append_path(svg, area, ""), "fill", append_texture(svg, id + name, texture, "stroke-faint", 1 / block));
  };
  append_textured(cells_data(drawing.rows, '+'), "-partly", Texture::hatch);
  append_textured(cells_data(drawing.rows, ' '), "-padding", Texture::dots);
}

void append_drawing_key(pugi::xml_node svg, const CaseDrawing& drawing, double top, const std::string& id) {
  double y = top;
  const auto entry = [&](const std::string& words, const char* name, Texture texture, const char* kind) {
    const SvgBox box{.x = 1, .y = y, .width = kDrawingSwatch, .height = kDrawingSwatch};
    append_rect(svg, box, kind);
    if (*name != '\0') set(append_rect(svg, box, ""), "fill", append_texture(svg, id + name, texture, "stroke-faint"));
    append_label(svg, kDrawingSwatch + 8, y + kDrawingSwatch - 2, words);
    y += kDrawingKeyLine;
  };
  entry("every query sees every key, in the colour of its rank", "", Texture::hatch, "r0 bordered");
  entry("some see some", "-key-partly", Texture::hatch, "r0 partly bordered");
  entry(fmt::format("none sees any (a block is {} x {})", drawing.q_per_block, drawing.kv_per_block), "",
        Texture::hatch, "fill-none bordered");
  entry("padding", "-key-padding", Texture::dots, "fill-none bordered");
  append_path(svg, line_data(0, y + kDrawingSwatch / 2, kDrawingSwatch + 2, y + kDrawingSwatch / 2), "edge");
  append_label(svg, kDrawingSwatch + 8, y + kDrawingSwatch - 2, "tiles meet: a chunk of queries and a chunk of keys");
}

std::string drawing_description(const CaseDrawing& drawing) {
  std::size_t all = 0;
  std::size_t some = 0;
  for (const std::string& row : drawing.rows) {
    all += static_cast<std::size_t>(std::ranges::count(row, '#'));
    some += static_cast<std::size_t>(std::ranges::count(row, '+'));
  }
  return fmt::format(
      "{} rows and {} columns of blocks of {} queries x {} keys. In {} blocks every query sees every key, "
      "in {} some see some. The page has the same as text.",
      drawing.rows.size(), drawing.kv_ranks.size(), drawing.q_per_block, drawing.kv_per_block, all, some);
}

}  // namespace

void append_case_mask(pugi::xml_node parent, const CaseDrawing& drawing, int tiles, const std::string& caption,
                      const std::string& id) {
  if (drawing.rows.empty()) return;
  constexpr double kDrawingKeyLines = 5;
  const std::size_t rows = drawing.rows.size();
  const std::size_t columns = drawing.kv_ranks.size();
  const double block = std::min(kLargestBlock, kLongestDrawing / static_cast<double>(std::max(rows, columns)));
  const double width = block * static_cast<double>(columns);
  const double height = block * static_cast<double>(rows);
  const double legend = kDrawingMargin + height + kDrawingKeyLine / 2;
  pugi::xml_node figure = parent.append_child("figure");
  append_text(figure, "figcaption", caption);
  pugi::xml_node svg = append_svg(figure, {.id = id,
                                           .kind = "mask",
                                           .width = std::max(kLeastDrawing, kDrawingMargin + width + 2),
                                           .height = legend + kDrawingKeyLine * kDrawingKeyLines,
                                           .title = caption,
                                           .description = drawing_description(drawing)});
  append_rank_axes(svg, {.x = kDrawingMargin, .y = kDrawingMargin, .width = width, .height = height}, block,
                   owners_of(drawing.q_ranks, {}), owners_of(drawing.kv_ranks, {}));
  pugi::xml_node plot = svg.append_child("g");
  set(plot, "transform", fmt::format("translate({0} {0}) scale({1})", kDrawingMargin, svg_number(block)));
  append_blocks(plot, drawing, block, id);
  append_path(plot, tile_lines(drawing, tiles), "edge");
  append_drawing_key(svg, drawing, legend, id);
}

}  // namespace cp_pool
