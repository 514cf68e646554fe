#include "driver/report/diagnosis_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/report/mask_text.h"
#include "driver/report/text_format.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostRectangles = 3;  // of missing pairs, and as many of excess pairs

void add_rectangles(const std::vector<PairRectangle>& rectangles, std::string& lines) {
  const std::size_t shown = std::min(rectangles.size(), kMostRectangles);
  for (std::size_t i = 0; i < shown; ++i) lines += rectangles[i].text + '\n';
}

std::string pairs_text(const WrongPairs& pairs) {
  std::string lines;
  add_rectangles(pairs.missing, lines);
  add_rectangles(pairs.excess, lines);
  lines += fmt::format("in all {} of a query and a key are missing, {} in excess\n",
                       count_of(static_cast<std::size_t>(pairs.missing_pairs), "pair"), pairs.excess_pairs);
  return lines;
}

// Returns the sign for several cells together.
char together(std::string_view cells) {
  const auto has = [&](char sign) { return cells.find(sign) != std::string_view::npos; };
  if (has('?')) return '?';
  if (has('!') || (has('-') && has('+'))) return '!';
  for (const char sign : {'-', '+', '.'}) {
    if (has(sign)) return sign;
  }
  return ' ';
}

std::size_t cells_after(std::size_t cells, std::size_t factor) {
  return (cells + factor - 1) / factor;
}

std::vector<std::int64_t> coarser(const std::vector<std::int64_t>& borders, std::size_t factor) {
  std::vector<std::int64_t> out;
  for (const std::int64_t border : borders) {
    const std::int64_t cell = border / static_cast<std::int64_t>(factor);
    if (cell > 0 && (out.empty() || out.back() < cell)) out.push_back(cell);
  }
  return out;
}

std::vector<int> coarser(const std::vector<int>& ranks, std::size_t factor) {
  std::vector<int> out;
  for (std::size_t cell = 0; cell < ranks.size(); cell += factor) out.push_back(ranks[cell]);
  return out;
}

std::vector<std::vector<int>> coarser(const std::vector<std::vector<int>>& owners, std::size_t factor) {
  std::vector<std::vector<int>> out;
  for (std::size_t cell = 0; cell < owners.size(); cell += factor) {
    std::set<int> ranks;
    for (std::size_t i = cell; i < std::min(cell + factor, owners.size()); ++i) {
      ranks.insert(owners[i].begin(), owners[i].end());
    }
    out.emplace_back(ranks.begin(), ranks.end());
  }
  return out;
}

// Joins factor x factor cells into one.
MaskPicture coarser(const MaskPicture& picture, std::size_t factor) {
  MaskPicture out{.q_per_cell = picture.q_per_cell * static_cast<std::int64_t>(factor),
                  .kv_per_cell = picture.kv_per_cell * static_cast<std::int64_t>(factor),
                  .rows = {},
                  .q_borders = coarser(picture.q_borders, factor),
                  .kv_borders = coarser(picture.kv_borders, factor),
                  .q_ranks = coarser(picture.q_ranks, factor),
                  .kv_ranks = coarser(picture.kv_ranks, factor),
                  .q_owners = coarser(owners_of(picture.q_ranks, picture.q_owners), factor),
                  .kv_owners = coarser(owners_of(picture.kv_ranks, picture.kv_owners), factor)};
  for (std::size_t first = 0; first < picture.rows.size(); first += factor) {
    std::string& row = out.rows.emplace_back();
    for (std::size_t column = 0; column < picture.rows.front().size(); column += factor) {
      std::string cells;
      for (std::size_t i = first; i < std::min(first + factor, picture.rows.size()); ++i) {
        cells += std::string_view{picture.rows[i]}.substr(column, factor);
      }
      row += together(cells);
    }
  }
  return out;
}

std::string picture_text(const MaskPicture& picture, DrawMask draw) {
  constexpr std::size_t kMostRows = 32;
  constexpr std::size_t kMostColumns = 64;
  const std::size_t columns = picture.rows.empty() ? 0 : picture.rows.front().size();
  std::size_t factor = 1;
  while (cells_after(picture.rows.size(), factor) > kMostRows || cells_after(columns, factor) > kMostColumns) ++factor;
  return mask_text(draw == DrawMask::whole || factor == 1 ? picture : coarser(picture, factor));
}

}  // namespace

bool names_a_cause(const Diagnosis& diagnosis) {
  return diagnosis.certainty != Certainty::unknown;
}

std::string cause_line(const Diagnosis& diagnosis) {
  if (!names_a_cause(diagnosis)) return fmt::format("cause: unknown: {}", diagnosis.cause);
  std::string line =
      fmt::format("cause{}: {}", diagnosis.certainty == Certainty::likely ? " (likely)" : "", diagnosis.cause);
  if (!diagnosis.explains.empty()) {
    line += fmt::format(" (explains {} within bounds)", fmt::join(diagnosis.explains, ", "));
  }
  const auto is_other = [](const std::string& sentence) { return sentence.starts_with("or: "); };
  const bool told = std::ranges::any_of(diagnosis.evidence, is_other);  // as sentences
  if (!diagnosis.others.empty() && !told) line += fmt::format("; or: {}", fmt::join(diagnosis.others, ", "));
  return line;
}

std::string diagnosis_text(const Diagnosis& diagnosis, DrawMask draw) {
  std::string lines;
  for (const std::string& evidence : diagnosis.evidence) lines += evidence + '\n';
  if (diagnosis.pairs) lines += pairs_text(*diagnosis.pairs);
  if (diagnosis.picture && draw != DrawMask::never) lines += picture_text(*diagnosis.picture, draw);
  return cause_line(diagnosis) + '\n' + (lines.empty() ? "" : prefix_lines(lines, "  "));
}

}  // namespace cp_pool
