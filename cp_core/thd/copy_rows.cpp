#include "cp_core/thd/copy_rows.h"

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/thd/row_kernels.h"

namespace cp_pool {

void copy_rows(const at::Tensor& source, at::Tensor& target, std::span<const RowCopy> copies) {
  TORCH_CHECK(source.is_contiguous() && target.is_contiguous() && source.dtype() == target.dtype() &&
                  source.sizes().slice(1) == target.sizes().slice(1) && source.device() == target.device(),
              "copy_rows needs tensors with rows of one kind");
  if (source.numel() == 0 || target.numel() == 0) return;
  const auto row_bytes = static_cast<std::int64_t>(source.nbytes()) / source.size(0);
  const auto* from = static_cast<const std::byte*>(source.const_data_ptr());
  auto* to = static_cast<std::byte*>(target.mutable_data_ptr());
  std::vector<BlockCopy> blocks;
  blocks.reserve(copies.size());
  for (const RowCopy& copy : copies) {
    blocks.push_back({.source = from + copy.source * row_bytes,
                      .target = to + copy.target * row_bytes,
                      .rows = 1,
                      .width = copy.count * row_bytes});
  }
  copy_blocks(blocks, source.device());
}

void copy_rows_back(const at::Tensor& target, at::Tensor& source, std::span<const RowCopy> copies) {
  std::vector<RowCopy> reversed(copies.begin(), copies.end());
  for (RowCopy& copy : reversed) std::swap(copy.source, copy.target);
  copy_rows(target, source, reversed);
}

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
