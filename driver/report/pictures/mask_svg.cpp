#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "driver/report/diagnosis_text.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/pictures/svg.h"
#include "driver/report/text_format.h"
#include "driver/report/xml_nodes.h"

namespace cp_pool {
namespace {

// All lengths are in units of the picture.
constexpr double kLongestMask = 330;
constexpr double kLargestMaskCell = 14;
constexpr double kMaskMargin = kRankAxis;
constexpr double kMaskKeyLine = 17;
constexpr double kLeastMask = 372;  // width that the legend needs

struct CellKind {
  char character;
  std::string_view words;
  std::string_view fill;
  std::optional<Texture> texture;
  std::string_view stroke;
};

constexpr std::array<CellKind, 5> kCellKinds{
    {{'.', "seen as expected", "fill-calm", std::nullopt, ""},
     {'-', "missing: expected, and not seen", "fill-bad tint", Texture::hatch, "stroke-bad"},
     {'+', "excess: seen, and not expected, or seen twice", "fill-warm partly", Texture::dots, "stroke-ink"},
     {'!', "both: some missing, some in excess", "fill-warm", Texture::cross, "stroke-bad"},
     {'?', kUnclearWeights, "fill-padding", Texture::cross, "stroke-ink"}}};

// Returns false for a cell outside the picture. A row or column before the first has wrapped around to a large number.
bool is_expected(const MaskPicture& picture, std::size_t row, std::size_t column) {
  if (row >= picture.rows.size() || column >= picture.rows[row].size()) return false;
  return std::string_view{".-!"}.find(picture.rows[row][column]) != std::string_view::npos;
}

std::size_t count_cells(const MaskPicture& picture, char character) {
  std::ptrdiff_t found = 0;
  for (const std::string& row : picture.rows) found += std::ranges::count(row, character);
  return static_cast<std::size_t>(found);
}

// Returns the lines between cells that should see something and cells that should not.
std::string outline_of(const MaskPicture& picture) {
  std::string data;
  const std::size_t rows = picture.rows.size();
  const std::size_t columns = picture.rows.front().size();
  for (std::size_t row = 0; row <= rows; ++row) {
    std::string above(columns, ' ');
    for (std::size_t column = 0; column < columns; ++column) {
      if (is_expected(picture, row, column) != is_expected(picture, row - 1, column)) above[column] = '|';
    }
    for (const CellRun& run : runs_in(above, '|')) data += fmt::format("M{} {}H{}", run.begin, row, run.end);
  }
  for (std::size_t column = 0; column <= columns; ++column) {
    std::string left(rows, ' ');
    for (std::size_t row = 0; row < rows; ++row) {
      if (is_expected(picture, row, column) != is_expected(picture, row, column - 1)) left[row] = '|';
    }
    for (const CellRun& run : runs_in(left, '|')) data += fmt::format("M{} {}V{}", column, run.begin, run.end);
  }
  return data;
}

std::string borders_of(const MaskPicture& picture) {
  std::string data;
  for (const std::int64_t border : picture.q_borders) {
    data += fmt::format("M0 {}H{}", border, picture.rows.front().size());
  }
  for (const std::int64_t border : picture.kv_borders) data += fmt::format("M{} 0V{}", border, picture.rows.size());
  return data;
}

std::string cell_words(const MaskPicture& picture) {
  if (picture.q_per_cell == 1 && picture.kv_per_cell == 1) return "A cell is one query and one key";
  return fmt::format("A cell is {} queries x {} keys", picture.q_per_cell, picture.kv_per_cell);
}

std::string mask_description(const MaskPicture& picture) {
  std::string text = fmt::format("{} of cells downwards, {} to the right. {}.", count_of(picture.rows.size(), "row"),
                                 count_of(picture.rows.front().size(), "column"), cell_words(picture));
  for (const CellKind& kind : kCellKinds) {
    if (const std::size_t found = count_cells(picture, kind.character); found > 0) {
      text += fmt::format(" {} {}.", count_of(found, "cell"), kind.words);
    }
  }
  return text;
}

// Appends an area, and over it the texture of its kind.
void append_kind(pugi::xml_node svg, pugi::xml_node into, const CellKind& kind, const std::string& area,
                 const std::string& texture_id, double unit) {
  append_path(into, area, std::string{kind.fill});
  if (!kind.texture) return;
  const std::string texture = append_texture(svg, texture_id, *kind.texture, std::string{kind.stroke}, unit);
  set(append_path(into, area, ""), "fill", texture);
}

// Appends the legend of the characters that occur, one line each below the picture.
void append_mask_key(pugi::xml_node svg, const MaskPicture& picture, double top, const std::string& id) {
  constexpr double kSwatch = 12;
  constexpr double kTextX = kSwatch + 8;
  double y = top;
  for (const CellKind& kind : kCellKinds) {
    const std::size_t found = count_cells(picture, kind.character);
    if (found == 0) continue;
    const std::string area = fmt::format("M1 {0}h{1}v{1}h-{1}z", svg_number(y), kSwatch);
    append_kind(svg, svg, kind, area, fmt::format("{}-key-{}", id, static_cast<int>(kind.character)), 1);
    append_label(svg, kTextX, y + kSwatch - 2, fmt::format("{} ({})", kind.words, count_of(found, "cell")));
    y += kMaskKeyLine;
  }
  append_path(svg, line_data(0, y + kSwatch / 2, kSwatch + 2, y + kSwatch / 2), "edge");
  append_label(svg, kTextX, y + kSwatch - 2, "outline of what was expected");
  if (picture.q_borders.empty() && picture.kv_borders.empty()) return;
  y += kMaskKeyLine;
  append_path(svg, line_data(0, y + kSwatch / 2, kSwatch + 2, y + kSwatch / 2), "edge dashed");
  append_label(svg, kTextX, y + kSwatch - 2, "another sequence begins");
}

std::size_t mask_key_lines(const MaskPicture& picture) {
  std::size_t lines = picture.q_borders.empty() && picture.kv_borders.empty() ? 1 : 2;
  for (const CellKind& kind : kCellKinds) lines += count_cells(picture, kind.character) > 0 ? 1 : 0;
  return lines;
}

void append_cells(pugi::xml_node svg, const MaskPicture& picture, double cell, const std::string& id) {
  pugi::xml_node plot = svg.append_child("g");
  set(plot, "transform", fmt::format("translate({0} {0}) scale({1})", kMaskMargin, svg_number(cell)));
  for (const CellKind& kind : kCellKinds) {
    const std::string area = cells_data(picture.rows, kind.character);
    if (area.empty()) continue;
    append_kind(svg, plot, kind, area, fmt::format("{}-cell-{}", id, static_cast<int>(kind.character)), 1 / cell);
  }
  append_path(plot, outline_of(picture), "edge");
  append_path(plot, borders_of(picture), "edge dashed");
  append_path(plot, fmt::format("M0 0H{0}V{1}H0z", picture.rows.front().size(), picture.rows.size()), "thin");
}

}  // namespace

void append_mask(pugi::xml_node parent, const MaskPicture& picture, const std::string& id) {
  const std::size_t rows = picture.rows.size();
  const std::size_t columns = picture.rows.front().size();
  pugi::xml_node figure = parent.append_child("figure");
  append_text(figure, "figcaption",
              fmt::format("The mask as it was seen: queries downwards, keys to the right. {} of the padded sequences. "
                          "The bands name the ranks that own them.",
                          cell_words(picture)));
  const double cell = std::min(kLargestMaskCell, kLongestMask / static_cast<double>(std::max(rows, columns)));
  const double width = cell * static_cast<double>(columns);
  const double height = cell * static_cast<double>(rows);
  const double legend = kMaskMargin + height + kMaskKeyLine / 2;
  pugi::xml_node svg =
      append_svg(figure, {.id = id,
                          .kind = "mask",
                          .width = std::max(kLeastMask, kMaskMargin + width + 2),
                          .height = legend + kMaskKeyLine * static_cast<double>(mask_key_lines(picture)),
                          .title = "The mask as it was seen",
                          .description = mask_description(picture)});
  append_rank_axes(svg, {.x = kMaskMargin, .y = kMaskMargin, .width = width, .height = height}, cell,
                   owners_of(picture.q_ranks, picture.q_owners), owners_of(picture.kv_ranks, picture.kv_owners));
  append_cells(svg, picture, cell, id);
  append_mask_key(svg, picture, legend, id);
}

}  // namespace cp_pool
