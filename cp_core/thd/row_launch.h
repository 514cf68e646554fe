// The launches of row_kernels.h, on plain pointers: LibTorch's headers would take nvcc ten times as long as the kernels
// do. The caller has checked the arguments, and checks whether a launch failed. Each function throws std::length_error
// if a launch would have too many rows.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>

#include "cp_core/cuda/row_type.h"
#include "cp_core/partition.h"
#include "cp_core/thd/block_copy.h"
#include "cp_core/thd/row_segments.h"

namespace cp_pool::cuda {

// A contiguous tensor [rows, heads, columns].
struct DeviceRows {
  void* data;
  RowType type;
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t columns;
};

void launch_copy_blocks(std::span<const BlockCopy> blocks, cudaStream_t stream);

// The segments of a sum. All parts have one type, and the heads and columns of the sum.
struct RowSums {
  DeviceRows sum;
  bool empty;  // whether the sum is overwritten instead of added to
  RowType part_type;
  std::span<const void* const> parts;
  std::span<const RowSegment> segments;
};
void launch_sum_rows(const RowSums& call, cudaStream_t stream);

// lse: [heads, rows of out]. part_lse: [heads, rows of part_out].
void launch_merge_partial(const DeviceRows& out, float* lse, const DeviceRows& part_out, const float* part_lse,
                          std::span<const RowCopy> rows, cudaStream_t stream);
// out must be fp32.
void launch_merge_sink(const DeviceRows& out, float* lse, const float* sink, std::span<const RowRange> rows,
                       cudaStream_t stream);

// lse and delta are [heads, tokens]; sink, sums and gradient are [heads]. sums and gradient must be 0 before; sums
// holds the sum of the lists of rows so far, each of which is a launch.
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
