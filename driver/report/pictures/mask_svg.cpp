#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "driver/core/mapped.h"
#include "driver/report/case_text.h"
#include "driver/report/html_document.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/pictures/svg.h"
#include "driver/report/text_format.h"

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

std::size_t count_cells(const std::vector<std::string>& rows, char character) {
  std::ptrdiff_t found = 0;
  for (const std::string& row : rows) found += std::ranges::count(row, character);
  return static_cast<std::size_t>(found);
}

// Appends a line of a legend that shows a line of this class. Returns where the next one begins.
double append_line_key(pugi::xml_node svg, double y, const std::string& kind, const std::string& words) {
  append_path(svg, line_data(0, y + kMaskSwatch / 2, kMaskSwatch + 2, y + kMaskSwatch / 2), kind);
  append_label(svg, kMaskSwatch + 8, y + kMaskSwatch - 2, words);
  return y + kMaskKeyLine;
}

// A kind of cells: how the picture and its legend show it.
struct CellKind {
  char character;
  std::string_view words;
  std::string_view fill;
  std::optional<Texture> texture = std::nullopt;
  std::string_view stroke = "";
};

// Appends the texture of the kind over an area, if it has one. `id` begins the id of the texture.
void append_cell_texture(pugi::xml_node svg, pugi::xml_node into, const CellKind& kind, const std::string& area,
                         const std::string& id, double unit) {
  if (!kind.texture || area.empty()) return;
  const std::string name = fmt::format("{}-{}", id, static_cast<int>(kind.character));
  const std::string texture = append_texture(svg, name, *kind.texture, std::string{kind.stroke}, unit);
  set(append_path(into, area, ""), "fill", texture);
}

// Appends a line of a legend that shows a kind of cells. Returns where the next one begins.
double append_kind_key(pugi::xml_node svg, double y, const CellKind& kind, const std::string& words,
                       const std::string& id) {
  const std::string area = fmt::format("M1 {0}h{1}v{1}h-{1}z", svg_number(y), kMaskSwatch);
  append_path(svg, area, std::string{kind.fill});
  append_cell_texture(svg, svg, kind, area, id + "-key", 1);
  append_label(svg, kMaskSwatch + 8, y + kMaskSwatch - 2, words);
  return y + kMaskKeyLine;
}

// --- The mask of a failing case as the diagnosis saw it ---

constexpr std::array<CellKind, 5> kCellKinds{
    {{'.', "seen as expected", "fill-calm"},
     {'-', "missing: expected, and not seen", "fill-bad tint", Texture::hatch, "stroke-bad"},
     {'+', "excess: seen, and not expected, or seen twice", "fill-warm partly", Texture::dots, "stroke-ink"},
     {'!', "both: some missing, some in excess", "fill-warm", Texture::cross, "stroke-bad"},
     {'?', kUnclearWeights, "fill-padding", Texture::cross, "stroke-ink"}}};

// Returns false for a cell outside the picture. A row or column before the first has wrapped around to a large number.
bool is_expected(const MaskPicture& picture, std::size_t row, std::size_t column) {
  if (row >= picture.rows.size() || column >= picture.rows[row].size()) return false;
  return std::string_view{".-!"}.find(picture.rows[row][column]) != std::string_view::npos;
}

// Returns the lines between cells that should see something and cells that should not.
std::string outline_of(const MaskPicture& picture) {
  std::string data;
  const std::size_t rows = picture.rows.size();
  const std::size_t columns = picture.rows.front().size();
  // Adds the lines between rows or columns. `differ` says whether a line runs along a cell.
  const auto add = [&](std::size_t lines, std::size_t cells, const auto& differ, fmt::string_view data_of_line) {
    for (std::size_t line = 0; line <= lines; ++line) {
      std::vector<bool> edge(cells);
      for (std::size_t cell = 0; cell < cells; ++cell) edge[cell] = differ(line, cell);
      for (const auto& [begin, end] : stretches(edge, std::equal_to{})) {
        if (edge[begin]) data += fmt::format(fmt::runtime(data_of_line), begin, line, end);
      }
    }
  };
  const auto seen = [&](std::size_t row, std::size_t column) { return is_expected(picture, row, column); };
  add(rows, columns, [&](auto row, auto column) { return seen(row, column) != seen(row - 1, column); }, "M{} {}H{}");
  add(columns, rows, [&](auto column, auto row) { return seen(row, column) != seen(row, column - 1); }, "M{1} {0}V{2}");
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
    if (const std::size_t found = count_cells(picture.rows, kind.character); found > 0) {
      text += fmt::format(" {} {}.", count_of(found, "cell"), kind.words);
    }
  }
  return text;
}

// Appends the legend of the characters that occur, one line each below the picture.
void append_mask_key(pugi::xml_node svg, const MaskPicture& picture, double top, const std::string& id) {
  double y = top;
  for (const CellKind& kind : kCellKinds) {
    const std::size_t found = count_cells(picture.rows, kind.character);
    if (found > 0) y = append_kind_key(svg, y, kind, fmt::format("{} ({})", kind.words, count_of(found, "cell")), id);
  }
  y = append_line_key(svg, y, "edge", "outline of what was expected");
  if (picture.q_borders.empty() && picture.kv_borders.empty()) return;
  append_line_key(svg, y, "edge dashed", "another sequence begins");
}

std::size_t mask_key_lines(const MaskPicture& picture) {
  std::size_t lines = picture.q_borders.empty() && picture.kv_borders.empty() ? 1 : 2;
  for (const CellKind& kind : kCellKinds) lines += count_cells(picture.rows, kind.character) > 0 ? 1 : 0;
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

// The fills are those of the legend: a block that somebody sees has the colour of its rank.
constexpr std::array<CellKind, 4> kBlockKinds{
    {{'#', "every query sees every key, in the colour of its rank", "r0 bordered"},
     {'+', "some see some", "r0 partly bordered", Texture::hatch, "stroke-faint"},
     {'.', "none sees any", "fill-none bordered"},
     {' ', "padding", "fill-none bordered", Texture::dots, "stroke-faint"}}};

void append_blocks(pugi::xml_node svg, const CaseDrawing& drawing, double block, const std::string& id) {
  for (int rank : std::set<int>(drawing.q_ranks.begin(), drawing.q_ranks.end())) {
    std::vector<std::string> own = drawing.rows;
    for (std::size_t row = 0; row < own.size(); ++row) {
      if (drawing.q_ranks[row] != rank) own[row].clear();
    }
    for (const auto& [character, kind] : {std::pair{'#', ""}, {'+', " partly"}}) {
      const std::string area = cells_data(own, character);
      if (!area.empty()) append_path(svg, area, rank_class(rank) + kind);
    }
  }
  for (const CellKind& kind : kBlockKinds) {
    append_cell_texture(svg, svg, kind, cells_data(drawing.rows, kind.character), id + "-cell", 1 / block);
  }
}

void append_drawing_key(pugi::xml_node svg, const CaseDrawing& drawing, double top, const std::string& id) {
  double y = top;
  for (const CellKind& kind : kBlockKinds) {
    std::string words{kind.words};
    if (kind.character == '.') words += fmt::format(" (a block is {} x {})", drawing.q_per_block, drawing.kv_per_block);
    y = append_kind_key(svg, y, kind, words, id);
  }
  append_line_key(svg, y, "edge", "tiles meet: a chunk of queries and a chunk of keys");
}

std::string drawing_description(const CaseDrawing& drawing) {
  return fmt::format(
      "{} rows and {} columns of blocks of {} queries x {} keys. In {} blocks every query sees every key, "
      "in {} some see some. The page has the same as text.",
      drawing.rows.size(), drawing.kv_ranks.size(), drawing.q_per_block, drawing.kv_per_block,
      count_cells(drawing.rows, '#'), count_cells(drawing.rows, '+'));
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
    append_path(grid.plot, area, std::string{kind.fill});
    append_cell_texture(grid.svg, grid.plot, kind, area, id + "-cell", 1 / grid.cell);
  }
  append_path(grid.plot, outline_of(picture), "edge");
  const std::size_t rows = picture.rows.size();
  const std::size_t columns = picture.rows.front().size();
  std::string borders;
  for (const std::int64_t border : picture.q_borders) borders += fmt::format("M0 {}H{}", border, columns);
  for (const std::int64_t border : picture.kv_borders) borders += fmt::format("M{} 0V{}", border, rows);
  append_path(grid.plot, borders, "edge dashed");
  append_path(grid.plot, fmt::format("M0 0H{0}V{1}H0z", columns, rows), "thin");
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
