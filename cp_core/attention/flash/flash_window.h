// The window and max_seqlen_k to pass to FlashAttention 2 for a group of tiles. FlashAttention 2 treats a finite side
// of at least max_seqlen_k as infinite, and an infinite side beside a finite one as max_seqlen_k. Both can be wrong
// where there are more queries than keys, so max_seqlen_k may have to be larger than the number of keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cp_core/tiling.h"

namespace cp_pool {

struct FlashWindow {
  std::int64_t left = kInfiniteWindow;
  std::int64_t right = kInfiniteWindow;

  [[nodiscard]] bool causal() const { return left == kInfiniteWindow && right == 0; }

  // The smallest max_seqlen_k with which tiles up to m x n get this window.
  [[nodiscard]] std::int64_t max_seqlen_k(std::int64_t m, std::int64_t n) const {
    std::int64_t length = n;
    if (left != kInfiniteWindow) length = std::max(length, left + 1);
    if (right != kInfiniteWindow) length = std::max(length, right + 1);
    // FlashAttention takes the length for `right` here. The first row then sees keys up to n - m + length, which must
    // reach the last key.
    if (left != kInfiniteWindow && right == kInfiniteWindow) length = std::max(length, m - 1);
    return length;
  }

  // True if the fixed-length interface, where max_seqlen_k is n, gives m x n tiles this window.
  [[nodiscard]] bool fits_fixed_length(std::int64_t m, std::int64_t n) const { return max_seqlen_k(m, n) <= n; }
};

}  // namespace cp_pool
