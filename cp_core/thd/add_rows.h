// Sums of rows.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"

namespace cp_pool {

// sum, part: contiguous [rows, ...] with rows of one size, on one device; fp32 or both of one 16-bit dtype, in any
// combination. Rows `source` of the part are added to rows `target` of the sum, in fp32, and rounded to the dtype of
// the sum. The targets are disjoint; other rows are untouched.
void add_rows(at::Tensor& sum, const at::Tensor& part, std::span<const RowCopy> rows);

}  // namespace cp_pool
