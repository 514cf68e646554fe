// The mask of a case: which keys a query sees. `cp-pool explain` counts and draws it. cp_core/tiling.h turns it into
// rectangles, and the test of cp_core/tiling.h compares those with visible(). The verification has a definition of its
// own (visible_keys in verify/canonical.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cases/case.h"

namespace cp_pool {

// Returns a / b rounded toward -inf, for b > 0.
constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - static_cast<std::int64_t>(a % b < 0);
}

inline Interval intersect(const Interval& a, const Interval& b) {
  return {.begin = std::max(a.begin, b.begin), .end = std::min(a.end, b.end)};
}

// Window around the bottom-right diagonal of each sequence, and chunks; or slices.
struct Mask {
  std::int64_t left = kInfiniteWindow;   // keys before the diagonal; kInfiniteWindow = all
  std::int64_t right = kInfiniteWindow;  // keys after the diagonal; causal masks have 0
  std::int64_t chunk = 0;                // positions per chunk; 0 = not chunked
  std::vector<MaskSlice> slices = {};    // of every sequence, in place of the other members unless empty

  bool operator==(const Mask&) const = default;
};

Mask make_mask(const Case& c);

// Returns the keys that the slice shows to query i, valid or not.
Interval visible_keys(const MaskSlice& slice, std::int64_t i);

// Returns the keys of a sequence that its query i sees, with sq valid queries and skv valid keys, as disjoint ranges:
// those of the slices, or the one of those within the window around the diagonal and in the same chunk. A padding query
// sees none.
std::vector<Interval> visible_keys(const Mask& mask, std::int64_t i, std::int64_t sq, std::int64_t skv);

// The number of keys among `keys` that the query sees.
std::int64_t count_visible(const Mask& mask, std::int64_t i, const Interval& keys, std::int64_t sq, std::int64_t skv);

// Whether query i of a sequence sees key j of the same sequence. Both are valid positions: 0 <= i < sq, 0 <= j < skv.
bool visible(const Mask& mask, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv);

}  // namespace cp_pool
