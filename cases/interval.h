// A range of consecutive positions of a sequence.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cp_pool {

struct Interval {  // [begin, end); empty if end <= begin
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end > begin ? end - begin : 0; }
};

inline Interval intersect(const Interval& a, const Interval& b) {
  return {.begin = std::max(a.begin, b.begin), .end = std::min(a.end, b.end)};
}

}  // namespace cp_pool
