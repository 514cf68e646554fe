// The launches of tile_rows.h, on plain pointers: LibTorch's headers would take nvcc ten times as long as the kernels
// do. The caller has checked the arguments, and checks whether a launch failed. In a RowCopy, `source` is a row of the
// packed tensor and `target` one of the buffer, whichever way the data goes.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>

#include "cp_core/cuda/row_type.h"
#include "cp_core/partition.h"

namespace cp_pool::cuda {

// Where a buffer keeps a statistic of head h and row r (counted over the whole buffer), which belongs to range b of the
// given ranges: at element b * range_stride + h * head_stride + r * row_stride.
struct StatisticLayout {
  std::int64_t range_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

// A contiguous buffer [..., heads, buffer_dim].
struct RowBuffer {
  const void* data;
  RowType type;
};
struct RowShape {
  int heads;
  int dim;         // of the packed tensor
  int buffer_dim;  // of the buffer, >= dim
};

// A copy from a buffer to a packed statistic.
struct PutStatistic {
  StatisticLayout layout;
  const float* buffer;
  float* packed;  // [heads, tokens]
  std::int64_t tokens;
};

// A copy from a packed statistic to a buffer.
struct GatheredStatistic {
  StatisticLayout layout;
  const float* packed;
  std::int64_t packed_head_stride;
  float* buffer;
  int heads;
};

// Each throws std::length_error if a row number does not fit into 31 bits.
void launch_put_partial(std::span<const RowCopy> rows, const RowShape& shape, const RowBuffer& out, float* packed,
                        const PutStatistic& lse, cudaStream_t stream);
void launch_gather_statistic(std::span<const RowCopy> rows, const GatheredStatistic& statistic, cudaStream_t stream);

void launch_write_ints(std::span<const std::int32_t> values, std::int32_t* target, cudaStream_t stream);

}  // namespace cp_pool::cuda
