// Copies only the rows of tiles between packed tensors and the buffers of a library's call. The row ranges are passed
// as kernel parameters, in as many launches as they need, so that nothing is uploaded or read back and a CUDA graph can
// capture the copy. In every RowCopy here, `source` is a row of the packed tensor and `target` one of the buffer,
// whichever way the data goes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/attention/backend.h"
#include "cp_core/attention/tile_rows_launch.h"

namespace cp_pool::cuda {

// Writes the packed rows of partial.out and partial.lse from the buffers out, contiguous [rows, heads, >= head_dim_v],
// and lse, fp32 as `layout` says. +inf in lse, which FlashAttention gives rows without keys, becomes -inf.
void put_partial(const at::Tensor& out, const at::Tensor& lse, const StatisticLayout& layout,
                 std::span<const RowCopy> rows, AttentionPartial& partial);

// Adds rows of the buffer, [.., heads, >= dim], to the packed rows of `sum`, fp32 [tokens, heads, dim].
void add_rows(const at::Tensor& buffer, std::span<const RowCopy> rows, at::Tensor& sum);

// Swaps source and target of each range.
std::vector<RowCopy> reversed(std::vector<RowCopy> rows);

// Copies the packed rows of a statistic, fp32 [heads, tokens] with contiguous tokens, to a buffer.
void gather_statistic(const at::Tensor& statistic, std::span<const RowCopy> rows, const StatisticLayout& layout,
                      at::Tensor& buffer);

// Returns the values as an int32 tensor on the current device. A kernel writes them from its parameters, since an
// upload from pageable memory would wait for the device and could not be captured.
at::Tensor device_ints(std::span<const std::int32_t> values);

}  // namespace cp_pool::cuda
