// A rectangle of bytes to copy, without LibTorch's headers.
#pragma once

#include <cstdint>

namespace cp_pool {

// A copy of `rows` rows of `width` bytes. Strides are the bytes from one row to the next. Source and target are in
// memory of one device and need no alignment; the copy is fastest if everything is a multiple of 16 bytes.
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

// Whether the block's rows lie within `bytes` bytes if the first row begins at byte `first` and each following row
// `stride` bytes later.
inline bool lies_in(std::int64_t bytes, const BlockCopy& block, std::int64_t first, std::int64_t stride) {
  if (is_empty(block)) return true;
  const std::int64_t last = first + (block.rows - 1) * stride;
  return block.rows > 0 && block.width > 0 && first >= 0 && last >= first && last + block.width <= bytes;
}

}  // namespace cp_pool
