#include "driver/reporters/pictures/mask_svg.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "driver/reporters/pictures/rank_axes.h"
#include "driver/reporters/pictures/svg.h"
#include "driver/reporters/text_format.h"
#include "driver/reporters/xml_nodes.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostMaskCells = 256;  // along a side

// Units.
constexpr double kLongestMask = 330;
constexpr double kLargestMaskCell = 14;
constexpr double kMaskMargin = kRankAxis;
constexpr double kMaskKeyLine = 17;
constexpr double kLeastMask = 372;  // of the legend

struct CellKind {
  char character;
  std::string_view words;
  std::string_view fill;  // a class, or empty: nothing under the texture
  std::optional<Texture> texture;
  std::string_view stroke;
};

constexpr std::array<CellKind, 5> kCellKinds{
    {{'.', "seen as expected", "fill-calm", std::nullopt, ""},
     {'-', "missing: expected, and not seen", "", Texture::hatch, "stroke-bad"},
     {'+', "excess: seen, and not expected, or seen twice", "fill-warm partly", Texture::dots, "stroke-ink"},
     {'!', "both: some missing, some in excess", "fill-warm", Texture::cross, "stroke-bad"},
     {'?', "weights that are no whole numbers", "fill-padding", Texture::cross, "stroke-ink"}}};

// The cells, whatever a worker has sent: all rows count_cells as long as the longest, and characters that are not known
// as those of weights that are no whole numbers.
class Cells {
 public:
  explicit Cells(const MaskPicture& picture) : rows_(picture.rows) {
    for (const std::string& row : rows_) columns_ = std::max(columns_, row.size());
  }
  [[nodiscard]] std::size_t rows() const { return rows_.size(); }
  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] char at(std::size_t row, std::size_t column) const {
    if (row >= rows_.size() || column >= rows_[row].size()) return ' ';
    const char character = rows_[row][column];
    return character == ' ' || std::ranges::find(kCellKinds, character, &CellKind::character) != kCellKinds.end()
               ? character
               : '?';
  }
  [[nodiscard]] bool expected(std::size_t row, std::size_t column) const {
    return std::string_view{".-!"}.find(at(row, column)) != std::string_view::npos;
  }

 private:
  const std::vector<std::string>& rows_;
  std::size_t columns_ = 0;
};

std::size_t count_cells(const Cells& cells, char character) {
  std::size_t found = 0;
  for (std::size_t row = 0; row < cells.rows(); ++row) {
    for (std::size_t column = 0; column < cells.columns(); ++column) found += cells.at(row, column) == character;
  }
  return found;
}

// A path around every run of the character in a row, in cells.
std::string area_of(const Cells& cells, char character) {
  std::string data;
  for (std::size_t row = 0; row < cells.rows(); ++row) {
    for (std::size_t column = 0; column < cells.columns();) {
      const std::size_t begin = column;
      while (column < cells.columns() && cells.at(row, column) == character) ++column;
      if (column > begin) data += fmt::format("M{} {}H{}V{}H{}z", begin, row, column, row + 1, begin);
      if (column == begin) ++column;
    }
  }
  return data;
}

// Lines between cells that should see something and cells that should not.
std::string outline_of(const Cells& cells) {
  std::string data;
  const auto differ = [&](std::size_t row, std::size_t column, std::size_t other_row, std::size_t other_column) {
    const bool other = other_row < cells.rows() && other_column < cells.columns();  // before the first: wrapped around
    const bool one = row < cells.rows() && column < cells.columns();
    return (one && cells.expected(row, column)) != (other && cells.expected(other_row, other_column));
  };
  for (std::size_t row = 0; row <= cells.rows(); ++row) {
    for (std::size_t column = 0; column < cells.columns();) {
      const std::size_t begin = column;
      while (column < cells.columns() && differ(row, column, row - 1, column)) ++column;
      if (column > begin) data += fmt::format("M{} {}H{}", begin, row, column);
      if (column == begin) ++column;
    }
  }
  for (std::size_t column = 0; column <= cells.columns(); ++column) {
    for (std::size_t row = 0; row < cells.rows();) {
      const std::size_t begin = row;
      while (row < cells.rows() && differ(row, column, row, column - 1)) ++row;
      if (row > begin) data += fmt::format("M{} {}V{}", column, begin, row);
      if (row == begin) ++row;
    }
  }
  return data;
}

std::string borders_of(const MaskPicture& picture, const Cells& cells) {
  std::string data;
  const auto inside = [](std::int64_t border, std::size_t size) {
    return border > 0 && static_cast<std::size_t>(border) < size;
  };
  for (const std::int64_t border : picture.q_borders) {
    if (inside(border, cells.rows())) data += fmt::format("M0 {}H{}", border, cells.columns());
  }
  for (const std::int64_t border : picture.kv_borders) {
    if (inside(border, cells.columns())) data += fmt::format("M{} 0V{}", border, cells.rows());
  }
  return data;
}

std::string cell_words(const MaskPicture& picture) {
  if (picture.q_per_cell == 1 && picture.kv_per_cell == 1) return "A cell is one query and one key";
  return fmt::format("A cell is {} queries x {} keys", picture.q_per_cell, picture.kv_per_cell);
}

std::string mask_description(const MaskPicture& picture, const Cells& cells) {
  std::string text = fmt::format("{} of cells downwards, {} to the right. {}.", count_of(cells.rows(), "row"),
                                 count_of(cells.columns(), "column"), cell_words(picture));
  for (const CellKind& kind : kCellKinds) {
    if (const std::size_t found = count_cells(cells, kind.character); found > 0) {
      text += fmt::format(" {} {}.", count_of(found, "cell"), kind.words);
    }
  }
  return text;
}

// An area, and over it the texture of its kind.
void append_kind(pugi::xml_node svg, pugi::xml_node into, const CellKind& kind, const std::string& area,
                 const std::string& texture_id, double unit) {
  if (!kind.fill.empty()) append_path(into, area, std::string{kind.fill});
  if (!kind.texture) return;
  const std::string texture = append_texture(svg, texture_id, *kind.texture, std::string{kind.stroke}, unit);
  set(append_path(into, area, ""), "fill", texture);
}

// What the picture needs to say, a line each below it.
void append_mask_key(pugi::xml_node svg, const MaskPicture& picture, const Cells& cells, double top,
                     const std::string& id) {
  constexpr double kSwatch = 12;
  constexpr double kTextX = kSwatch + 8;
  double y = top;
  for (const CellKind& kind : kCellKinds) {
    const std::size_t found = count_cells(cells, kind.character);
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

std::size_t mask_key_lines(const MaskPicture& picture, const Cells& cells) {
  std::size_t lines = picture.q_borders.empty() && picture.kv_borders.empty() ? 1 : 2;
  for (const CellKind& kind : kCellKinds) lines += count_cells(cells, kind.character) > 0 ? 1 : 0;
  return lines;
}

void append_cells(pugi::xml_node svg, const MaskPicture& picture, const Cells& cells, double cell,
                  const std::string& id) {
  pugi::xml_node plot = svg.append_child("g");
  set(plot, "transform", fmt::format("translate({0} {0}) scale({1})", kMaskMargin, svg_number(cell)));
  for (const CellKind& kind : kCellKinds) {
    const std::string area = area_of(cells, kind.character);
    if (area.empty()) continue;
    append_kind(svg, plot, kind, area, fmt::format("{}-cell-{}", id, static_cast<int>(kind.character)), 1 / cell);
  }
  append_path(plot, outline_of(cells), "edge");
  append_path(plot, borders_of(picture, cells), "edge dashed");
  append_path(plot, fmt::format("M0 0H{0}V{1}H0z", cells.columns(), cells.rows()), "thin");
}

}  // namespace

void append_mask(pugi::xml_node parent, const MaskPicture& picture, const std::string& id) {
  const Cells cells(picture);
  if (cells.rows() == 0 || cells.columns() == 0) return;
  pugi::xml_node figure = parent.append_child("figure");
  if (std::max(cells.rows(), cells.columns()) > kMostMaskCells) {
    append_text(
        figure, "figcaption",
        fmt::format("The mask as it was seen has {} x {} cells: too many to draw.", cells.rows(), cells.columns()));
    return;
  }
  append_text(figure, "figcaption",
              fmt::format("The mask as it was seen: queries downwards, keys to the right. {} of the padded sequences. "
                          "The bands name the ranks that own them.",
                          cell_words(picture)));
  const double cell =
      std::min(kLargestMaskCell, kLongestMask / static_cast<double>(std::max(cells.rows(), cells.columns())));
  const double width = cell * static_cast<double>(cells.columns());
  const double height = cell * static_cast<double>(cells.rows());
  const double legend = kMaskMargin + height + kMaskKeyLine / 2;
  pugi::xml_node svg =
      append_svg(figure, {.id = id,
                          .kind = "mask",
                          .width = std::max(kLeastMask, kMaskMargin + width + 2),
                          .height = legend + kMaskKeyLine * static_cast<double>(mask_key_lines(picture, cells)),
                          .title = "The mask as it was seen",
                          .description = mask_description(picture, cells)});
  append_rank_axes(svg, {.x = kMaskMargin, .y = kMaskMargin, .width = width, .height = height}, cell, picture.q_ranks,
                   picture.kv_ranks);
  append_cells(svg, picture, cells, cell, id);
  append_mask_key(svg, picture, cells, legend, id);
}

}  // namespace cp_pool
