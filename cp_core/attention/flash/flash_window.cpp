#include "cp_core/attention/flash/flash_window.h"

#include <algorithm>

namespace cp_pool {

std::int64_t FlashWindow::max_seqlen_k(std::int64_t m, std::int64_t n) const {
  std::int64_t length = n;
  if (left != kInfiniteWindow) length = std::max(length, left + 1);
  if (right != kInfiniteWindow) length = std::max(length, right + 1);
  // The first row ends at key n - m + right, which must not be before the last key.
  if (left != kInfiniteWindow && right == kInfiniteWindow) length = std::max(length, m - 1);
  return length;
}

}  // namespace cp_pool
