// Sums of rows.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"

namespace cp_pool {

// Some rows of a packed tensor whose other rows are 0: row `source` of `tensor` is row `target` of the packed tensor.
// Targets are disjoint.
struct SomeRows {
  at::Tensor tensor;
  std::vector<RowCopy> rows;
};

// sum, parts: contiguous [rows, ...] with rows of one size, on one device; fp32 or one 16-bit dtype, the same for all
// parts. Parts are added one after the other in fp32, and the result is rounded once, to the dtype of the sum; the
// tensors of the parts must not overlap the sum. On a GPU: on the current stream, one launch for up to 640 ranges of
// rows that have the same parts.

// Adds to the sum. Rows that no part has are untouched.
void add_rows(at::Tensor& sum, std::span<const SomeRows> parts);

// The sum of the parts alone, whatever its memory held: all its rows are written.
void sum_rows(at::Tensor& sum, std::span<const SomeRows> parts);

}  // namespace cp_pool
