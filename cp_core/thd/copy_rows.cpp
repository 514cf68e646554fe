#include "cp_core/thd/copy_rows.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include <c10/util/Exception.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/thd/row_kernels.h"

namespace cp_pool {
namespace {

void copy_rows_cpu(const std::byte* source, std::byte* target, std::size_t row_bytes, std::span<const RowCopy> copies) {
  for (const RowCopy& copy : copies) {
    std::memcpy(target + static_cast<std::size_t>(copy.target) * row_bytes,
                source + static_cast<std::size_t>(copy.source) * row_bytes,
                static_cast<std::size_t>(copy.count) * row_bytes);
  }
}

std::size_t row_bytes(const at::Tensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.sizes().slice(1)) elements *= size;
  return static_cast<std::size_t>(elements) * tensor.element_size();
}

}  // namespace

void copy_rows(const at::Tensor& source, at::Tensor& target, std::span<const RowCopy> copies) {
  TORCH_CHECK(source.is_contiguous() && target.is_contiguous() && source.dtype() == target.dtype() &&
                  source.sizes().slice(1) == target.sizes().slice(1) && source.device() == target.device(),
              "copy_rows needs tensors with rows of one kind");
  if (source.numel() == 0 || target.numel() == 0) return;
  if (source.is_cuda()) {
    cuda_part<RowKernels>().copy_rows(source, target, copies);
    return;
  }
  TORCH_CHECK(source.is_cpu(), "copy_rows has no kernel for ", source.device());
  copy_rows_cpu(static_cast<const std::byte*>(source.const_data_ptr()), static_cast<std::byte*>(target.data_ptr()),
                row_bytes(source), copies);
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
