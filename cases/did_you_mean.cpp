#include "cases/did_you_mean.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool {
namespace {

// Levenshtein distance: insertions, deletions and substitutions from a to b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view unknown, const std::vector<std::string>& known) {
  constexpr std::size_t kLongestName = 64;
  if (unknown.size() > kLongestName) return {};
  const std::string* nearest = nullptr;
  std::size_t nearest_distance = std::max<std::size_t>(1, unknown.size() / 3) + 1;
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(unknown, name);
    if (distance < nearest_distance) {
      nearest = &name;
      nearest_distance = distance;
    }
  }
  return nearest == nullptr ? std::string() : fmt::format("; did you mean '{}'?", *nearest);
}

std::string join_names(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace cp_pool
