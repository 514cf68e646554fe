#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "driver/core/figures.h"
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

constexpr double kRankAxis = 32;  // width of the axes above and left of the plot
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

// `cell` is the length of a cell in units. `q_owners` holds the ranks that own each row of cells (owners_of,
// cases/diagnosis.h); `kv_owners` is the same for columns. Cells of several ranks are grey. Numbers that do not fit are
// left out; tooltips show all.
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

// Returns path data around each run of consecutive cells that hold the character, in all rows; a cell is one unit.
std::string cells_data(const std::vector<std::string>& rows, char character) {
  std::string data;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const auto& [begin, end] : stretches(rows[row], std::equal_to{})) {
      if (rows[row][begin] == character) data += fmt::format("M{0} {1}H{2}V{3}H{0}z", begin, row, end, row + 1);
    }
  }
  return data;
}

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

// A line of a legend.
struct KeyLine {
  std::string words;
  const CellKind* kind = nullptr;  // the kind of cells that it shows
  const char* line = "";           // class of the line that it shows, if it shows no cells
};

// Draws the legend below the picture.
void append_key(const MaskGrid& grid, const std::vector<KeyLine>& lines, const std::string& id) {
  double y = grid.legend;
  for (const KeyLine& each : lines) {
    if (each.kind != nullptr) {
      const std::string area = fmt::format("M1 {0}h{1}v{1}h-{1}z", svg_number(y), kMaskSwatch);
      append_path(grid.svg, area, std::string{each.kind->fill});
      append_cell_texture(grid.svg, grid.svg, *each.kind, area, id + "-key", 1);
    } else {
      append_path(grid.svg, line_data(0, y + kMaskSwatch / 2, kMaskSwatch + 2, y + kMaskSwatch / 2), each.line);
    }
    append_label(grid.svg, kMaskSwatch + 8, y + kMaskSwatch - 2, each.words);
    y += kMaskKeyLine;
  }
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

// Returns the legend of the characters that occur, and of lines.
std::vector<KeyLine> mask_key(const MaskPicture& picture) {
  std::vector<KeyLine> lines;
  for (const CellKind& kind : kCellKinds) {
    const std::size_t found = count_cells(picture.rows, kind.character);
    if (found > 0) lines.push_back({fmt::format("{} ({})", kind.words, count_of(found, "cell")), &kind});
  }
  lines.push_back({.words = "outline of what was expected", .line = "edge"});
  if (picture.q_borders.empty() && picture.kv_borders.empty()) return lines;
  lines.push_back({.words = "another sequence begins", .line = "edge dashed"});
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

std::vector<KeyLine> drawing_key(const CaseDrawing& drawing) {
  std::vector<KeyLine> lines;
  for (const CellKind& kind : kBlockKinds) {
    std::string words{kind.words};
    if (kind.character == '.') words += fmt::format(" (a block is {} x {})", drawing.q_per_block, drawing.kv_per_block);
    lines.push_back({std::move(words), &kind});
  }
  lines.push_back({.words = "tiles meet: a chunk of queries and a chunk of keys", .line = "edge"});
  return lines;
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
  const std::vector<KeyLine> key = mask_key(picture);
  const MaskGrid grid =
      append_grid(parent, id, {caption, "The mask as it was seen", mask_description(picture)}, kLargestCell, key.size(),
                  owners_of(picture.q_ranks, picture.q_owners), owners_of(picture.kv_ranks, picture.kv_owners));
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
  append_key(grid, key, id);
}

void append_case_mask(pugi::xml_node parent, const CaseDrawing& drawing, int tiles, const std::string& caption,
                      const std::string& id) {
  if (drawing.rows.empty()) return;
  constexpr double kLargestBlock = 20;
  const std::vector<KeyLine> key = drawing_key(drawing);
  const MaskGrid grid = append_grid(parent, id, {caption, caption, drawing_description(drawing)}, kLargestBlock,
                                    key.size(), owners_of(drawing.q_ranks, {}), owners_of(drawing.kv_ranks, {}));
  append_blocks(grid.plot, drawing, grid.cell, id);
  append_path(grid.plot, tile_lines(drawing, tiles), "edge");
  append_key(grid, key, id);
}

}  // namespace cp_pool
