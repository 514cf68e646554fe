// Adds up rows of several tensors.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"

namespace cp_pool {

// A packed tensor of which only some rows are stored and the others are 0: row `source` of `tensor` is row `target` of
// the packed tensor. Targets must be disjoint.
struct SomeRows {
  at::Tensor tensor;
  std::vector<RowCopy> rows;
};

// Both functions take contiguous tensors [rows, ...] with rows of one size, on one device. Each of the sum and the
// parts is fp32 or 16-bit; all parts have one dtype, and if the sum and the parts are 16-bit, they have the same dtype.
// Parts are added one after the other in fp32, and the result is rounded once, to the dtype of the sum. The parts must
// not overlap the sum. On a GPU the work is on the current stream, with one launch for up to 640 segments
// (row_segments.h).

// Adds the parts to the sum. Rows that are in no part are untouched.
void add_rows(at::Tensor& sum, std::span<const SomeRows> parts);

// Overwrites all rows of the sum with the sum of the parts.
void sum_rows(at::Tensor& sum, std::span<const SomeRows> parts);

}  // namespace cp_pool
