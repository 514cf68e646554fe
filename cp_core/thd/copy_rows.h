// Copies rows of packed tensors, such as from the dual-chunk order of the ranks to sequence order and back, and
// rectangles of memory, such as to pack messages.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"
#include "cp_core/thd/block_copy.h"

namespace cp_pool {

// source, target: contiguous [rows, ...], of one dtype, device and row size. Rows of `target` in no copy are untouched.
void copy_rows(const at::Tensor& source, at::Tensor& target, std::span<const RowCopy> copies);

// The same copies from target to source.
void copy_rows_back(const at::Tensor& target, at::Tensor& source, std::span<const RowCopy> copies);

// Copies many rectangles of memory at once, between tensors of any dtype. On a GPU this runs on the current stream,
// with one launch for up to 480 blocks. A target must not overlap a source or another target.
void copy_blocks(std::span<const BlockCopy> blocks, const c10::Device& device);

}  // namespace cp_pool
