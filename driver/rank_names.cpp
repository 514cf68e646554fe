#include "driver/rank_names.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

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

}  // namespace cp_pool
