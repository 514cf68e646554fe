#include "cp_core/thd/copy_blocks.h"

#include <cstddef>
#include <cstring>

#include <c10/util/Exception.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/thd/row_kernels.h"

namespace cp_pool {

void copy_blocks(std::span<const BlockCopy> blocks, const c10::Device& device) {
  if (device.is_cuda()) {
    cuda_part<RowKernels>().copy_blocks(blocks);
    return;
  }
  TORCH_CHECK(device.is_cpu(), "copy_blocks has no kernel for ", device);
  for (const BlockCopy& block : blocks) {
    if (block.width == 0) continue;
    for (std::int64_t row = 0; row < block.rows; ++row) {
      std::memcpy(static_cast<std::byte*>(block.target) + row * block.target_stride,
                  static_cast<const std::byte*>(block.source) + row * block.source_stride,
                  static_cast<std::size_t>(block.width));
    }
  }
}

}  // namespace cp_pool
