// The edges of the case space: where a size meets another one, or ends. Mistakes of off by one lie there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cases/case.h"

namespace cp_pool::search {

// How many positions of the longest query sequence, padded, are in each of the 2 * cp_size pieces that the dual-chunk
// partition cuts it into.
std::int64_t piece_of(const Case& c);

struct Edge {
  std::string_view name;
  bool (*holds)(const Case& c);
};
std::span<const Edge> edges();

}  // namespace cp_pool::search
