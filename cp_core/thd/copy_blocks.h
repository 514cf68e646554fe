// Many rectangles of memory copied at once, from and to tensors of any dtype: what packing messages is made of.
#pragma once

#include <cstdint>
#include <span>

#include <c10/core/Device.h>

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

// On a GPU: on the current stream, one launch for up to 480 blocks. The targets must not overlap anything.
void copy_blocks(std::span<const BlockCopy> blocks, const c10::Device& device);

}  // namespace cp_pool
