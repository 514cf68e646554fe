// Reorders the rows of packed tensors, from the dual-chunk order of the ranks to sequence order and back.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"

namespace cp_pool {

// source, target: contiguous [rows, ...], of one dtype, device and row size. Rows of `target` in no copy are untouched.
void copy_rows(const at::Tensor& source, at::Tensor& target, std::span<const RowCopy> copies);

// The same copies from target to source.
void copy_rows_back(const at::Tensor& target, at::Tensor& source, std::span<const RowCopy> copies);

}  // namespace cp_pool
