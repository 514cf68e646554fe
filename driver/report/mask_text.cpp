#include "driver/report/mask_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/figures.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr std::string_view kIndent = "  ";

constexpr char kSeveralRanks = '*';

using Owners = std::vector<std::vector<int>>;

char rank_sign(const Owners& owners, std::size_t cell) {
  if (cell >= owners.size() || owners[cell].empty()) return ' ';
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
  const auto queries = static_cast<std::size_t>(std::max<std::int64_t>(picture.q_per_cell, 0));
  const auto keys = static_cast<std::size_t>(std::max<std::int64_t>(picture.kv_per_cell, 0));
  const bool several = ranks.find(kSeveralRanks) != std::string::npos;
  return fmt::format("{}queries downwards, keys to the right, with their ranks{}; a cell is {} x {}\n{}{}\n", kIndent,
                     several ? fmt::format(" ({}: several)", kSeveralRanks) : "",
                     queries == 1 ? "1 query" : fmt::format("{} queries", queries), count_of(keys, "key"), kIndent,
                     fmt::join(meanings, "; "));
}

}  // namespace

std::string mask_text(const MaskPicture& picture) {
  std::size_t columns = 0;
  for (const std::string& row : picture.rows) columns = std::max(columns, row.size());
  if (columns == 0) return {};
  std::string ranks;
  const Owners kv_owners = owners_of(picture.kv_ranks, picture.kv_owners);
  const Owners q_owners = owners_of(picture.q_ranks, picture.q_owners);
  for (std::size_t cell = 0; cell < columns; ++cell) ranks += rank_sign(kv_owners, cell);
  std::string text = fmt::format("{}   {}\n", kIndent, with_borders(picture, ranks, ' '));
  text += frame(picture, columns);
  for (std::size_t i = 0; i < picture.rows.size(); ++i) {
    if (i > 0 && is_border(picture.q_borders, i)) text += frame(picture, columns);
    std::string cells = picture.rows[i];
    cells.resize(columns, ' ');
    ranks += rank_sign(q_owners, i);
    text += fmt::format("{}{} |{}|\n", kIndent, ranks.back(), with_borders(picture, cells, '|'));
  }
  return text + frame(picture, columns) + legend(picture, ranks);
}

}  // namespace cp_pool
