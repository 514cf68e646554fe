// The edges of the case space: sizes that equal another size or are the least possible. Off-by-one mistakes show there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cases/case.h"

namespace cp_pool::search {

// Returns the positions in each of the 2 * cp_size pieces into which the dual-chunk partition splits the longest,
// padded query sequence.
std::int64_t piece_of(const Case& c);

struct Edge {
  std::string_view name;
  bool (*holds)(const Case& c);
};
std::span<const Edge> edges();

}  // namespace cp_pool::search
