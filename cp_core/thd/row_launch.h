// The launches of row_kernels.h, on plain pointers: LibTorch's headers would cost nvcc ten times what the kernels do.
// What they are given has been checked; whether a launch failed is for the caller to ask. Each throws std::length_error
// where the rows are too many for a launch.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>

#include "cp_core/cuda/row_type.h"
#include "cp_core/partition.h"
#include "cp_core/thd/block_copy.h"
#include "cp_core/thd/row_segments.h"

namespace cp_pool::cuda {

// Contiguous [rows, heads, columns].
struct DeviceRows {
  void* data;
  RowType type;
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t columns;
};

void launch_copy_rows(const void* source, void* target, std::int64_t row_bytes, std::span<const RowCopy> copies,
                      cudaStream_t stream);
void launch_copy_blocks(std::span<const BlockCopy> blocks, cudaStream_t stream);

// The segments of a sum. All parts have one type, and the heads and columns of the sum.
struct RowSums {
  DeviceRows sum;
  bool empty;  // the target is overwritten, not added to
  RowType part_type;
  std::span<const void* const> parts;
  std::span<const RowSegment> segments;
};
void launch_sum_rows(const RowSums& call, cudaStream_t stream);

// lse: [heads, rows] of out, part_lse: of part_out.
void launch_merge_partial(const DeviceRows& out, float* lse, const DeviceRows& part_out, const float* part_lse,
                          std::span<const RowCopy> rows, cudaStream_t stream);
// out: fp32.
void launch_merge_sink(const DeviceRows& out, float* lse, const float* sink, std::span<const RowRange> rows,
                       cudaStream_t stream);

// All of [heads, tokens], or of [heads]. sums and gradient: zeros; sums is what the lists of rows have added so far.
struct SinkGradient {
  const float* sink;
  const float* lse;
  const float* delta;
  std::int64_t heads;
  std::int64_t tokens;
  double* sums;
  float* gradient;
};
void launch_sink_gradient(const SinkGradient& call, std::span<const RowRange> rows, cudaStream_t stream);

}  // namespace cp_pool::cuda
