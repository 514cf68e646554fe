// The mask of a case as the library uses it: which keys a query sees. tiling.h turns it into rectangles, and its test
// compares them with visible(). The verification has a definition of its own (visible_keys in verify/canonical.h).
#pragma once

#include <cstdint>

#include "cases/case.h"

namespace cp_pool {

// Window and chunk around the bottom-right diagonal of each sequence.
struct Mask {
  std::int64_t left = kInfiniteWindow;   // keys before the diagonal; kInfiniteWindow = all
  std::int64_t right = kInfiniteWindow;  // keys after the diagonal; causal masks have 0
  std::int64_t chunk = 0;                // positions a chunk; 0 = none

  bool operator==(const Mask&) const = default;
};

Mask make_mask(const Case& c);

// Does query i of a sequence see key j of the same sequence? Both are valid positions: 0 <= i < sq, 0 <= j < skv.
bool visible(const Mask& mask, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv);

}  // namespace cp_pool
