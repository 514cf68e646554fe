// The mask of a case: which keys a query sees. `cp-pool explain` counts and draws it; cp_core/tiling.h turns it into
// rectangles, and its test compares them with visible(). The verification has a definition of its own (visible_keys in
// verify/canonical.h).
#pragma once

#include <cstdint>

#include "cases/case.h"
#include "cases/interval.h"

namespace cp_pool {

// Window and chunk around the bottom-right diagonal of each sequence.
struct Mask {
  std::int64_t left = kInfiniteWindow;   // keys before the diagonal; kInfiniteWindow = all
  std::int64_t right = kInfiniteWindow;  // keys after the diagonal; causal masks have 0
  std::int64_t chunk = 0;                // positions a chunk; 0 = none

  bool operator==(const Mask&) const = default;
};

Mask make_mask(const Case& c);

// The keys of a sequence that its query i sees, with sq and skv valid positions: those within the window around the
// diagonal and in the same chunk, which are contiguous. Empty for a padding query.
Interval visible_keys(const Mask& mask, std::int64_t i, std::int64_t sq, std::int64_t skv);

// Does query i of a sequence see key j of the same sequence? Both are valid positions: 0 <= i < sq, 0 <= j < skv.
bool visible(const Mask& mask, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv);

}  // namespace cp_pool
