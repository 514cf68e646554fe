#include "cp_core/attention/flash/flash_window.h"

#include <algorithm>

namespace cp_pool {

std::int64_t FlashWindow::max_seqlen_k(std::int64_t m, std::int64_t n) const {
  std::int64_t length = n;
  if (left != kInfiniteWindow) length = std::max(length, left + 1);
  if (right != kInfiniteWindow) length = std::max(length, right + 1);
  // FlashAttention takes the length for `right` here. The first row then sees keys up to n - m + length, which must
  // reach the last key.
  if (left != kInfiniteWindow && right == kInfiniteWindow) length = std::max(length, m - 1);
  return length;
}

}  // namespace cp_pool
