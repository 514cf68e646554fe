#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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
constexpr double kMaskKeyLine = 17;
constexpr double kLeastMask = 372;  // width that the legend needs
constexpr double kMaskSwatch = 12;

struct MaskWords {
  std::string caption;
  std::string title;
  std::string description;
};

// A picture of a mask in cells, with the owners of its rows and columns along its axes.
struct MaskGrid {
  pugi::xml_node svg;
  pugi::xml_node plot;  // its unit is a cell
  double cell;          // length of a cell
  double legend;        // top of the legend
};

MaskGrid append_grid(pugi::xml_node parent, const std::string& id, const MaskWords& words, double largest_cell,
                     std::size_t key_lines, const std::vector<std::vector<int>>& q_owners,
                     const std::vector<std::vector<int>>& kv_owners) {
  const auto rows = static_cast<double>(q_owners.size());
  const auto columns = static_cast<double>(kv_owners.size());
  const double cell = std::min(largest_cell, kLongestMask / std::max(rows, columns));
  const SvgBox plot{.x = kRankAxis, .y = kRankAxis, .width = cell * columns, .height = cell * rows};
  const double legend = kRankAxis + plot.height + kMaskKeyLine / 2;
  pugi::xml_node figure = parent.append_child("figure");
  append_text(figure, "figcaption", words.caption);
  pugi::xml_node svg = append_svg(figure, {.id = id,
                                           .kind = "mask",
                                           .width = std::max(kLeastMask, kRankAxis + plot.width + 2),
                                           .height = legend + kMaskKeyLine * static_cast<double>(key_lines),
                                           .title = words.title,
                                           .description = words.description});
  append_rank_axes(svg, plot, cell, q_owners, kv_owners);
  const std::string transform = fmt::format("translate({0} {0}) scale({1})", kRankAxis, svg_number(cell));
  return {svg, append(svg, "g", {{"transform", transform}}), cell, legend};
}

// Appends a line of a legend that shows a line of this class. Returns where the next one begins.
double append_line_key(pugi::xml_node svg, double y, const std::string& kind, const std::string& words) {
  append_path(svg, line_data(0, y + kMaskSwatch / 2, kMaskSwatch + 2, y + kMaskSwatch / 2), kind);
  append_label(svg, kMaskSwatch + 8, y + kMaskSwatch - 2, words);
  return y + kMaskKeyLine;
}

// --- The mask of a failing case as the diagnosis saw it ---

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
  double y = top;
  for (const CellKind& kind : kCellKinds) {
    const std::size_t found = count_cells(picture, kind.character);
    if (found == 0) continue;
    const std::string area = fmt::format("M1 {0}h{1}v{1}h-{1}z", svg_number(y), kMaskSwatch);
    append_kind(svg, svg, kind, area, fmt::format("{}-key-{}", id, static_cast<int>(kind.character)), 1);
    append_label(svg, kMaskSwatch + 8, y + kMaskSwatch - 2,
                 fmt::format("{} ({})", kind.words, count_of(found, "cell")));
    y += kMaskKeyLine;
  }
  y = append_line_key(svg, y, "edge", "outline of what was expected");
  if (picture.q_borders.empty() && picture.kv_borders.empty()) return;
  append_line_key(svg, y, "edge dashed", "another sequence begins");
}

std::size_t mask_key_lines(const MaskPicture& picture) {
  std::size_t lines = picture.q_borders.empty() && picture.kv_borders.empty() ? 1 : 2;
  for (const CellKind& kind : kCellKinds) lines += count_cells(picture, kind.character) > 0 ? 1 : 0;
  return lines;
}

// --- The mask of a sequence as `cp-pool explain` draws it ---

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
    const SvgBox box{.x = 1, .y = y, .width = kMaskSwatch, .height = kMaskSwatch};
    append_rect(svg, box, kind);
    if (*name != '\0') set(append_rect(svg, box, ""), "fill", append_texture(svg, id + name, texture, "stroke-faint"));
    append_label(svg, kMaskSwatch + 8, y + kMaskSwatch - 2, words);
    y += kMaskKeyLine;
  };
  entry("every query sees every key, in the colour of its rank", "", Texture::hatch, "r0 bordered");
  entry("some see some", "-key-partly", Texture::hatch, "r0 partly bordered");
  entry(fmt::format("none sees any (a block is {} x {})", drawing.q_per_block, drawing.kv_per_block), "",
        Texture::hatch, "fill-none bordered");
  entry("padding", "-key-padding", Texture::dots, "fill-none bordered");
  append_line_key(svg, y, "edge", "tiles meet: a chunk of queries and a chunk of keys");
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

void append_mask(pugi::xml_node parent, const MaskPicture& picture, const std::string& id) {
  constexpr double kLargestCell = 14;
  const std::string caption = fmt::format(
      "The mask as it was seen: queries downwards, keys to the right. {} of the padded sequences. The bands name the "
      "ranks that own them.",
      cell_words(picture));
  const MaskGrid grid = append_grid(parent, id, {caption, "The mask as it was seen", mask_description(picture)},
                                    kLargestCell, mask_key_lines(picture), owners_of(picture.q_ranks, picture.q_owners),
                                    owners_of(picture.kv_ranks, picture.kv_owners));
  for (const CellKind& kind : kCellKinds) {
    const std::string area = cells_data(picture.rows, kind.character);
    if (area.empty()) continue;
    append_kind(grid.svg, grid.plot, kind, area, fmt::format("{}-cell-{}", id, static_cast<int>(kind.character)),
                1 / grid.cell);
  }
  append_path(grid.plot, outline_of(picture), "edge");
  append_path(grid.plot, borders_of(picture), "edge dashed");
  append_path(grid.plot, fmt::format("M0 0H{0}V{1}H0z", picture.rows.front().size(), picture.rows.size()), "thin");
  append_mask_key(grid.svg, picture, grid.legend, id);
}

void append_case_mask(pugi::xml_node parent, const CaseDrawing& drawing, int tiles, const std::string& caption,
                      const std::string& id) {
  if (drawing.rows.empty()) return;
  constexpr double kLargestBlock = 20;
  constexpr std::size_t kKeyLines = 5;
  const MaskGrid grid = append_grid(parent, id, {caption, caption, drawing_description(drawing)}, kLargestBlock,
                                    kKeyLines, owners_of(drawing.q_ranks, {}), owners_of(drawing.kv_ranks, {}));
  append_blocks(grid.plot, drawing, grid.cell, id);
  append_path(grid.plot, tile_lines(drawing, tiles), "edge");
  append_drawing_key(grid.svg, drawing, grid.legend, id);
}

}  // namespace cp_pool
