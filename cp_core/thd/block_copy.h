// A rectangle of bytes to copy, without LibTorch's headers.
#pragma once

#include <cstdint>

namespace cp_pool {

// `rows` rows of `width` bytes; strides in bytes, from one row to the next. Both in memory of one device, aligned to
// nothing in particular: multiples of 16 everywhere are the fastest.
struct BlockCopy {
  const void* source = nullptr;
  void* target = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t source_stride = 0;
  std::int64_t target_stride = 0;
};

inline bool is_empty(const BlockCopy& block) {
  return block.rows == 0 || block.width == 0;
}

// Whether the block's rows lie within `bytes` bytes, if the first row begins at byte `first` and each next row `stride`
// bytes later.
inline bool lies_in(std::int64_t bytes, const BlockCopy& block, std::int64_t first, std::int64_t stride) {
  if (is_empty(block)) return true;
  const std::int64_t last = first + (block.rows - 1) * stride;
  return block.rows > 0 && block.width > 0 && first >= 0 && last >= first && last + block.width <= bytes;
}

}  // namespace cp_pool
