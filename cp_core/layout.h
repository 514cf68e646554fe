// Inside cp_core every tensor is packed: [tokens, heads, dim], contiguous, sequence by sequence, described by runs
// (partition.h). These functions convert the layouts of a case to packed and back, and tell padding from valid rows.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cp_core/partition.h"

namespace cp_pool {

// Shapes: bshd [batch, s, heads, dim], sbhd [s, batch, heads, dim], thd [tokens, heads, dim]. Returns a view unless
// rows must move.
at::Tensor to_packed(const at::Tensor& tensor, Layout layout);

// The inverse of to_packed. batch: the number of sequences, which all have the same length in bshd and sbhd.
at::Tensor from_packed(const at::Tensor& packed, Layout layout, std::int64_t batch);

// Returns the rows of the runs whose positions are before the valid length of their sequence. valid: one length for
// each sequence.
std::vector<RowRange> valid_rows(const std::vector<Run>& runs, const std::vector<std::int64_t>& valid);

}  // namespace cp_pool
