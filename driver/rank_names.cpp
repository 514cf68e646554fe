#include "driver/rank_names.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "cases/case_groups.h"

namespace cp_pool {

std::string name_ranks(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::string out = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == first + 1) last = first;  // two in a row are listed one by one
    out += fmt::format("{}{}", first == 0 ? " " : ", ", ranks[first]);
    if (last > first) out += fmt::format("-{}", ranks[last]);
    first = last + 1;
  }
  return out;
}

char rank_letter(int rank) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@&";
  static_assert(kLetters.size() == kMostCaseRanks);
  return rank >= 0 && rank < kMostCaseRanks ? kLetters[static_cast<std::size_t>(rank)] : '?';
}

}  // namespace cp_pool
