// Copies the rows of tiles, and no others, between packed tensors and the buffers of a library's call, in one launch.
// The ranges travel as kernel parameters (several launches where there are more than fit into one), so that nothing is
// uploaded or read back and a CUDA graph can capture it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/attention/backend.h"
#include "cp_core/attention/tile_rows_launch.h"

namespace cp_pool::cuda {

// partial.out and partial.lse at the packed rows, from out: contiguous [rows, heads, >= head_dim_v], bf16 or fp16, and
// lse: fp32. +inf in lse, which FlashAttention gives rows without keys, becomes -inf.
void put_partial(const at::Tensor& out, const at::Tensor& lse, const StatisticLayout& layout,
                 std::span<const RowCopy> rows, AttentionPartial& partial);

// Adds to the packed rows of `sum`, fp32 [tokens, heads, dim], those of `rows`: contiguous [rows, heads, >= dim].
void add_rows(const at::Tensor& buffer, std::span<const RowCopy> rows, at::Tensor& sum);

// Fills a buffer with a statistic, fp32 [heads, tokens] with contiguous tokens.
void gather_statistic(const at::Tensor& statistic, std::span<const RowCopy> rows, const StatisticLayout& layout,
                      at::Tensor& buffer);

// int32 [values] on the current device. Written by a kernel that has the values as its parameters: an upload from
// pageable memory would wait for the device, and could not be captured.
at::Tensor device_ints(std::span<const std::int32_t> values);

}  // namespace cp_pool::cuda
