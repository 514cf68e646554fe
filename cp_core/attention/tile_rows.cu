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

// Combines each element of a packed row with its counterpart in the buffer.
template <typename T, int kElements, typename Combine>
__device__ void for_each_element(const RowShape& shape, const T* buffer_row, float* packed_row, Combine combine) {
  const int per_head = shape.dim / kElements;
  for (int i = static_cast<int>(threadIdx.x); i < shape.heads * per_head; i += static_cast<int>(blockDim.x)) {
    const int head = i / per_head;
    const int column = i % per_head * kElements;
    const auto from = *reinterpret_cast<const Elements<T, kElements>*>(buffer_row + head * shape.buffer_dim + column);
    auto& to = *reinterpret_cast<Elements<float, kElements>*>(packed_row + head * shape.dim + column);
    Elements<float, kElements> values = to;
    for (int e = 0; e < kElements; ++e) combine(values.values[e], static_cast<float>(from.values[e]));
    to = values;
  }
}

template <typename T, int kElements>
__global__ void put_partial_kernel(Ranges ranges, RowShape shape, const T* buffer, float* packed, PutStatistic lse) {
  // 64 bits: the last step may go beyond the last row by as many blocks as there are.
  for (std::int64_t i = blockIdx.x; i < ranges.end[ranges.size - 1]; i += gridDim.x) {
    const Row row = find_row(ranges, static_cast<int>(i));
    for_each_element<T, kElements>(shape, buffer + row.buffer * shape.heads * shape.buffer_dim,
                                   packed + row.packed * shape.heads * shape.dim,
                                   [](float& to, float from) { to = from; });
    for (int h = static_cast<int>(threadIdx.x); h < shape.heads; h += static_cast<int>(blockDim.x)) {
      const float value = lse.buffer[place(lse.layout, row, h)];
      lse.packed[h * lse.tokens + row.packed] = value == INFINITY ? -INFINITY : value;
    }
  }
}

template <typename T, int kElements>
__global__ void add_rows_kernel(Ranges ranges, RowShape shape, const T* buffer, float* packed) {
  // 64 bits: the last step may go beyond the last row by as many blocks as there are.
  for (std::int64_t i = blockIdx.x; i < ranges.end[ranges.size - 1]; i += gridDim.x) {
    const Row row = find_row(ranges, static_cast<int>(i));
    for_each_element<T, kElements>(shape, buffer + row.buffer * shape.heads * shape.buffer_dim,
                                   packed + row.packed * shape.heads * shape.dim,
                                   [](float& to, float from) { to += from; });
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

unsigned row_blocks(const Ranges& ranges) {
  return blocks_for(ranges.end[ranges.size - 1]);
}

// Calls body(typed pointer to the buffer, integral constant of elements that a thread moves at once).
template <typename Body>
void dispatch(const RowBuffer& buffer, const float* packed, const RowShape& shape, Body body) {
  const bool vectors = shape.dim % kVector == 0 && shape.buffer_dim % kVector == 0 && is_aligned(buffer.data, 16) &&
                       is_aligned(packed, 16);
  const auto with_type = [&](const auto* pointer) {
    if (vectors) {
      body(pointer, std::integral_constant<int, kVector>{});
    } else {
      body(pointer, std::integral_constant<int, 1>{});
    }
  };
  switch (buffer.type) {
    case RowType::bf16:
      return with_type(static_cast<const __nv_bfloat16*>(buffer.data));
    case RowType::fp16:
      return with_type(static_cast<const __half*>(buffer.data));
    case RowType::fp32:
      return with_type(static_cast<const float*>(buffer.data));
  }
}

}  // namespace

void launch_put_partial(std::span<const RowCopy> rows, const RowShape& shape, const RowBuffer& out, float* packed,
                        const PutStatistic& lse, cudaStream_t stream) {
  dispatch(out, packed, shape, [&](const auto* source, auto elements) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(source)>>;
    for_each_launch(rows, [&](const Ranges& ranges) {
      put_partial_kernel<T, decltype(elements)::value>
          <<<row_blocks(ranges), kThreads, 0, stream>>>(ranges, shape, source, packed, lse);
    });
  });
}

void launch_add_rows(std::span<const RowCopy> rows, const RowShape& shape, const RowBuffer& buffer, float* sum,
                     cudaStream_t stream) {
  dispatch(buffer, sum, shape, [&](const auto* source, auto elements) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(source)>>;
    for_each_launch(rows, [&](const Ranges& ranges) {
      add_rows_kernel<T, decltype(elements)::value>
          <<<row_blocks(ranges), kThreads, 0, stream>>>(ranges, shape, source, sum);
    });
  });
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
