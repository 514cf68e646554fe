#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/figures.h"
#include "driver/report/case_text.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr std::string_view kIndent = "  ";

constexpr char kSeveralRanks = '*';

using Owners = std::vector<std::vector<int>>;

char rank_sign(const Owners& owners, std::size_t cell) {
  if (owners[cell].empty()) return ' ';
  return owners[cell].size() > 1 ? kSeveralRanks : rank_letter(owners[cell].front());
}

bool is_border(const std::vector<std::int64_t>& borders, std::size_t cell) {
  return std::ranges::find(borders, static_cast<std::int64_t>(cell)) != borders.end();
}

// Returns the cells, with `between` where another sequence of keys begins.
std::string with_borders(const MaskPicture& picture, std::string_view cells, char between) {
  std::string text;
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    if (cell > 0 && is_border(picture.kv_borders, cell)) text += between;
    text += cells[cell];
  }
  return text;
}

std::string frame(const MaskPicture& picture, std::size_t columns) {
  return fmt::format("{}  +{}+\n", kIndent, with_borders(picture, std::string(columns, '-'), '+'));
}

// ranks: the signs of the ranks at both sides.
std::string legend(const MaskPicture& picture, const std::string& ranks) {
  constexpr std::array<std::pair<char, std::string_view>, 5> kMeanings{{{'.', "as it should be"},
                                                                        {'-', "keys not seen"},
                                                                        {'+', "keys seen that should not be, or twice"},
                                                                        {'!', "both"},
                                                                        {'?', kUnclearWeights}}};
  std::vector<std::string> meanings;
  for (const auto& [sign, meaning] : kMeanings) {
    const auto occurs = [sign](const std::string& row) { return row.find(sign) != std::string::npos; };
    if (std::ranges::any_of(picture.rows, occurs)) meanings.push_back(fmt::format("{} {}", sign, meaning));
  }
  const bool several = ranks.find(kSeveralRanks) != std::string::npos;
  return fmt::format("{}queries downwards, keys to the right, with their ranks{}; a cell is {} x {}\n{}{}\n", kIndent,
                     several ? fmt::format(" ({}: several)", kSeveralRanks) : "",
                     picture.q_per_cell == 1 ? "1 query" : fmt::format("{} queries", picture.q_per_cell),
                     count_of(picture.kv_per_cell, "key"), kIndent, fmt::join(meanings, "; "));
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

std::vector<std::int64_t> coarser(const std::vector<std::int64_t>& borders, std::size_t factor) {
  std::vector<std::int64_t> out;
  for (const std::int64_t border : borders) {
    const std::int64_t cell = border / static_cast<std::int64_t>(factor);
    if (cell > 0 && (out.empty() || out.back() < cell)) out.push_back(cell);
  }
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
                  .q_borders = coarser(picture.q_borders, factor),
                  .kv_borders = coarser(picture.kv_borders, factor),
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
  std::size_t factor = 1;
  while (picture.rows.size() > kMostRows * factor || picture.rows.front().size() > kMostColumns * factor) ++factor;
  return mask_text(draw == DrawMask::whole || factor == 1 ? picture : coarser(picture, factor));
}

}  // namespace

std::string mask_text(const MaskPicture& picture) {
  const std::size_t columns = picture.rows.front().size();
  std::string ranks;
  const Owners kv_owners = owners_of(picture.kv_ranks, picture.kv_owners);
  const Owners q_owners = owners_of(picture.q_ranks, picture.q_owners);
  for (std::size_t cell = 0; cell < columns; ++cell) ranks += rank_sign(kv_owners, cell);
  std::string text = fmt::format("{}   {}\n", kIndent, with_borders(picture, ranks, ' '));
  text += frame(picture, columns);
  for (std::size_t i = 0; i < picture.rows.size(); ++i) {
    if (i > 0 && is_border(picture.q_borders, i)) text += frame(picture, columns);
    ranks += rank_sign(q_owners, i);
    text += fmt::format("{}{} |{}|\n", kIndent, ranks.back(), with_borders(picture, picture.rows[i], '|'));
  }
  return text + frame(picture, columns) + legend(picture, ranks);
}

bool names_a_cause(const Diagnosis& diagnosis) {
  return diagnosis.certainty != Certainty::unknown;
}

// Returns one line:
// "cause: the window's left edge is 63 instead of 64 (explains out, dq within bounds)"
// "cause (likely): .. (explains out within bounds); or: no_mask, whole_keys"
// "cause: unknown: only dk and dv are wrong"
static std::string cause_line(const Diagnosis& diagnosis) {
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
  if (diagnosis.pairs) {
    constexpr std::size_t kMostRectangles = 3;  // of missing pairs, and as many of excess pairs
    for (const auto* const wrong : {&diagnosis.pairs->missing, &diagnosis.pairs->excess}) {
      for (const PairRectangle& one : *wrong | std::views::take(kMostRectangles)) lines += one.text + '\n';
    }
    lines += fmt::format("in all {} of a query and a key are missing, {} in excess\n",
                         count_of(diagnosis.pairs->missing_pairs, "pair"), diagnosis.pairs->excess_pairs);
  }
  if (diagnosis.picture && draw != DrawMask::never) lines += picture_text(*diagnosis.picture, draw);
  return cause_line(diagnosis) + '\n' + (lines.empty() ? "" : prefix_lines(lines, "  "));
}

}  // namespace cp_pool
