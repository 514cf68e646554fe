#include <algorithm>
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <limits>
#include <stdexcept>

#include "cp_core/attention/tile_rows_launch.h"
#include "cp_core/thd/elements.cuh"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr std::int64_t kMostBlocks = 1 << 20;
constexpr int kVector = 8;  // elements that a thread moves at once: 16 bytes of bf16

// Sizes that keep the parameters of a kernel within 4 KiB.
constexpr int kRangesOfALaunch = 256;
struct Ranges {
  int size;
  int first;                     // index of the first one among the caller's ranges
  int packed[kRangesOfALaunch];  // first rows
  int buffer[kRangesOfALaunch];
  int end[kRangesOfALaunch];  // sum of the counts so far
};

constexpr int kMostInts = 960;
struct Ints {
  int count;
  int values[kMostInts];
};

struct Row {
  int range;
  std::int64_t packed;
  std::int64_t buffer;
};

__device__ Row find_row(const Ranges& ranges, int row) {
  const int run = find_run(ranges, row);
  const int within = row - (run == 0 ? 0 : ranges.end[run - 1]);
  return {ranges.first + run, std::int64_t{ranges.packed[run]} + within, std::int64_t{ranges.buffer[run]} + within};
}

__device__ std::int64_t place(const StatisticLayout& layout, const Row& row, int head) {
  return row.range * layout.range_stride + head * layout.head_stride + row.buffer * layout.row_stride;
}

// Copies the elements of a row of the buffer to the packed row.
template <typename T, int kElements>
__device__ void copy_elements(const RowShape& shape, const T* buffer_row, float* packed_row) {
  const int per_head = shape.dim / kElements;
  for (int i = static_cast<int>(threadIdx.x); i < shape.heads * per_head; i += static_cast<int>(blockDim.x)) {
    const int head = i / per_head;
    const int column = i % per_head * kElements;
    const auto from = *reinterpret_cast<const Elements<T, kElements>*>(buffer_row + head * shape.buffer_dim + column);
    Elements<float, kElements> values;
    for (int e = 0; e < kElements; ++e) values.values[e] = static_cast<float>(from.values[e]);
    *reinterpret_cast<Elements<float, kElements>*>(packed_row + head * shape.dim + column) = values;
  }
}

template <typename T, int kElements>
__global__ void put_partial_kernel(Ranges ranges, RowShape shape, const T* buffer, float* packed, PutStatistic lse) {
  // 64 bits: the last step may go beyond the last row by as many blocks as there are.
  for (std::int64_t i = blockIdx.x; i < ranges.end[ranges.size - 1]; i += gridDim.x) {
    const Row row = find_row(ranges, static_cast<int>(i));
    copy_elements<T, kElements>(shape, buffer + row.buffer * shape.heads * shape.buffer_dim,
                                packed + row.packed * shape.heads * shape.dim);
    for (int h = static_cast<int>(threadIdx.x); h < shape.heads; h += static_cast<int>(blockDim.x)) {
      const float value = lse.buffer[place(lse.layout, row, h)];
      lse.packed[h * lse.tokens + row.packed] = value == INFINITY ? -INFINITY : value;
    }
  }
}

// Threads run along the rows, which are contiguous in the packed statistic.
__global__ void gather_statistic_kernel(Ranges ranges, GatheredStatistic statistic) {
  const int rows = ranges.end[ranges.size - 1];
  const int head = static_cast<int>(blockIdx.y);
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows; i += stride) {
    const Row row = find_row(ranges, static_cast<int>(i));
    statistic.buffer[place(statistic.layout, row, head)] =
        statistic.packed[head * statistic.packed_head_stride + row.packed];
  }
}

__global__ void write_ints_kernel(Ints ints, int* target) {
  for (int i = static_cast<int>(threadIdx.x); i < ints.count; i += static_cast<int>(blockDim.x)) {
    target[i] = ints.values[i];
  }
}

int as_int(std::int64_t value) {
  if (value < 0 || value > std::numeric_limits<int>::max()) throw std::length_error("too many rows for tile_rows");
  return static_cast<int>(value);
}

// Calls launch(ranges) with as many ranges at a time as fit into the parameters.
template <typename Launch>
void for_each_launch(std::span<const RowCopy> rows, Launch launch) {
  for (std::size_t first = 0; first < rows.size(); first += kRangesOfALaunch) {
    const auto part = rows.subspan(first, std::min<std::size_t>(kRangesOfALaunch, rows.size() - first));
    Ranges ranges{};
    ranges.size = static_cast<int>(part.size());
    ranges.first = static_cast<int>(first);
    std::int64_t total = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
      total += part[i].count;
      ranges.packed[i] = as_int(part[i].source);
      ranges.buffer[i] = as_int(part[i].target);
      ranges.end[i] = as_int(total);
    }
    if (total > 0) launch(ranges);
  }
}

unsigned blocks_for(std::int64_t work) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(work, 1, kMostBlocks));
}

}  // namespace

void launch_put_partial(std::span<const RowCopy> rows, const RowShape& shape, const RowBuffer& out, float* packed,
                        const PutStatistic& lse, cudaStream_t stream) {
  const bool vectors =
      shape.dim % kVector == 0 && shape.buffer_dim % kVector == 0 && is_aligned(out.data, 16) && is_aligned(packed, 16);
  const auto launch = [&]<typename T>(const T* source) {
    const auto kernel = vectors ? put_partial_kernel<T, kVector> : put_partial_kernel<T, 1>;
    for_each_launch(rows, [&](const Ranges& ranges) {
      kernel<<<blocks_for(ranges.end[ranges.size - 1]), kThreads, 0, stream>>>(ranges, shape, source, packed, lse);
    });
  };
  switch (out.type) {
    case RowType::bf16:
      return launch(static_cast<const __nv_bfloat16*>(out.data));
    case RowType::fp16:
      return launch(static_cast<const __half*>(out.data));
    case RowType::fp32:
      return launch(static_cast<const float*>(out.data));
  }
}

void launch_gather_statistic(std::span<const RowCopy> rows, const GatheredStatistic& statistic, cudaStream_t stream) {
  for_each_launch(rows, [&](const Ranges& ranges) {
    const std::int64_t blocks = (ranges.end[ranges.size - 1] + kThreads - 1) / kThreads;
    const dim3 grid(blocks_for(blocks), static_cast<unsigned>(statistic.heads));
    gather_statistic_kernel<<<grid, kThreads, 0, stream>>>(ranges, statistic);
  });
}

void launch_write_ints(std::span<const std::int32_t> values, std::int32_t* target, cudaStream_t stream) {
  for (std::size_t first = 0; first < values.size(); first += kMostInts) {
    const auto part = values.subspan(first, std::min<std::size_t>(kMostInts, values.size() - first));
    Ints ints{};
    ints.count = static_cast<int>(part.size());
    std::ranges::copy(part, ints.values);
    write_ints_kernel<<<1, kThreads, 0, stream>>>(ints, target + first);
  }
}

}  // namespace cp_pool::cuda
