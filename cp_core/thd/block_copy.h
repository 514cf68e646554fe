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

}  // namespace cp_pool
