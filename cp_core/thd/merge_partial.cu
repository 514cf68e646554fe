#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cp_core/thd/elements.cuh"
#include "cp_core/thd/merge_math.h"
#include "cp_core/thd/row_launch.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;  // (row, head) pairs that a thread block merges

struct Shape {
  std::int64_t tokens = 0;
  std::int64_t part_tokens = 0;
  std::int64_t heads = 0;
  std::int64_t units = 0;  // units of one head of a row; a unit is one element or several
  int lanes = 1;           // threads that share one head of a row: a power of 2, at most a warp
};

// The weights for one head of one row, and the places of its first units in out and in the part.
struct Scales {
  std::int64_t unit;
  std::int64_t part_unit;
  float keep;
  float add;
};

template <typename Out, typename Part, int kElements>
__device__ void merge_unit(Elements<Out, kElements>& out, const Elements<Part, kElements>& part, const Scales& scales) {
  Elements<Out, kElements> values = out;
  const Elements<Part, kElements> added = part;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    values.values[e] = static_cast<Out>(static_cast<float>(values.values[e]) * scales.keep +
                                        static_cast<float>(added.values[e]) * scales.add);
  }
  out = values;
}
template <int kElements>
__device__ void scale_unit(Elements<float, kElements>& out, float keep) {
  Elements<float, kElements> values = out;
#pragma unroll
  for (int e = 0; e < kElements; ++e) values.values[e] *= keep;
  out = values;
}

// Finds the target's row and the part's row for number i of the concatenated runs.
template <int kCapacity>
__device__ void find_rows(const RangeList<kCapacity>& list, std::int64_t i, std::int64_t& row, std::int64_t& part_row) {
  row = part_row = row_at(list, i);
}
template <int kCapacity>
__device__ void find_rows(const CopyList<kCapacity>& list, std::int64_t i, std::int64_t& row, std::int64_t& part_row) {
  const int run = find_run(list, i);
  row = i + list.target[run];
  part_row = i + list.source[run];
}

// The first threads of a thread block compute the weights, once for each row and head. Then all threads go over the
// tile's units. weigh(at, part_at, head, scales) updates element `at` of lse and sets the weights in `scales`.
// change(unit, part unit, scales) writes a unit of out.
template <typename List, typename Weigh, typename Change>
__device__ void for_each_row_and_head(const List& rows, std::int64_t total, const Shape& shape, const Weigh& weigh,
                                      const Change& change) {
  __shared__ Scales tile[kTile];
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  const int count = static_cast<int>(min(std::int64_t{kTile}, total * shape.heads - first));
  if (static_cast<int>(threadIdx.x) < count) {
    const std::int64_t item = first + threadIdx.x;
    const std::int64_t i = item / shape.heads;
    const std::int64_t head = item - i * shape.heads;
    std::int64_t row = 0;
    std::int64_t part_row = 0;
    find_rows(rows, i, row, part_row);
    Scales scales{};
    scales.unit = (row * shape.heads + head) * shape.units;
    scales.part_unit = (part_row * shape.heads + head) * shape.units;
    weigh(head * shape.tokens + row, head * shape.part_tokens + part_row, head, scales);
    tile[threadIdx.x] = scales;
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % shape.lanes;
  for (int i = static_cast<int>(threadIdx.x) / shape.lanes; i < count; i += kThreads / shape.lanes) {
    const Scales scales = tile[i];
    for (std::int64_t unit = lane; unit < shape.units; unit += shape.lanes) {
      change(scales.unit + unit, scales.part_unit + unit, scales);
    }
  }
}

template <typename Out, typename Part, int kElements, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    merge_partial_kernel(Elements<Out, kElements>* __restrict__ out, float* __restrict__ lse,
                         const Elements<Part, kElements>* __restrict__ part_out, const float* __restrict__ part_lse,
                         const __grid_constant__ CopyList<kCapacity> rows, std::int64_t total, Shape shape) {
  for_each_row_and_head(
      rows, total, shape,
      [&](std::int64_t at, std::int64_t part_at, std::int64_t /*head*/, Scales& scales) {
        const double merged_lse = merge_math::log_add_exp(lse[at], part_lse[part_at]);
        scales.keep = merge_math::weight(lse[at], merged_lse);
        scales.add = merge_math::weight(part_lse[part_at], merged_lse);
        lse[at] = static_cast<float>(merged_lse);
      },
      [&](std::int64_t at, std::int64_t part_at, const Scales& scales) {
        merge_unit<Out, Part, kElements>(out[at], part_out[part_at], scales);
      });
}

template <int kElements, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    merge_sink_kernel(Elements<float, kElements>* __restrict__ out, float* __restrict__ lse,
                      const float* __restrict__ sink, const __grid_constant__ RangeList<kCapacity> rows,
                      std::int64_t total, Shape shape) {
  for_each_row_and_head(
      rows, total, shape,
      [&](std::int64_t at, std::int64_t /*part_at*/, std::int64_t head, Scales& scales) {
        const double merged_lse = merge_math::log_add_exp(lse[at], sink[head]);
        scales.keep = merge_math::weight(lse[at], merged_lse);
        lse[at] = static_cast<float>(merged_lse);
      },
      [&](std::int64_t at, std::int64_t /*part_at*/, const Scales& scales) {
        scale_unit<kElements>(out[at], scales.keep);
      });
}

// One thread block per head. `sums` holds the sum of the lists of rows so far, each of which is a launch.
template <int kCapacity>
__global__ void __launch_bounds__(merge_math::kSinkLanes)
    sink_gradient_kernel(const float* __restrict__ sink, const float* __restrict__ lse, const float* __restrict__ delta,
                         const __grid_constant__ RangeList<kCapacity> rows, std::int64_t total, std::int64_t tokens,
                         double* __restrict__ sums, float* __restrict__ gradient) {
  __shared__ double lanes[merge_math::kSinkLanes];
  const std::int64_t head = blockIdx.x;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < total; i += merge_math::kSinkLanes) {
    const std::int64_t at = head * tokens + row_at(rows, i);
    sum += merge_math::sink_term(sink[head], lse[at], delta[at]);
  }
  lanes[threadIdx.x] = sum;
  for (int half = merge_math::kSinkLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
  }
  if (threadIdx.x == 0) {
    sums[head] += lanes[0];
    gradient[head] = static_cast<float>(0.0 - sums[head]);  // a negation would give -0 without rows
  }
}

Shape shape_of(const DeviceRows& out, const DeviceRows& part_out, int elements) {
  Shape shape{.tokens = out.rows, .part_tokens = part_out.rows, .heads = out.heads, .units = out.columns / elements};
  while (shape.lanes < 32 && shape.lanes < shape.units) shape.lanes *= 2;
  return shape;
}

bool in_units_of(int elements, const DeviceRows& out) {
  return out.columns % elements == 0 && is_aligned(out.data, 16);
}

template <int kElements>
void merge_partial_by(const DeviceRows& out, float* lse, const DeviceRows& part_out, const float* part_lse,
                      std::span<const RowCopy> rows, cudaStream_t stream) {
  const Shape shape = shape_of(out, part_out, kElements);
  const auto launch = [&]<typename Out, typename Part>(Out* to, const Part* from) {
    in_lists(rows, [&](const auto& list, std::int64_t total) {
      merge_partial_kernel<Out, Part, kElements><<<blocks_for(total * shape.heads, kTile), kThreads, 0, stream>>>(
          reinterpret_cast<Elements<Out, kElements>*>(to), lse,
          reinterpret_cast<const Elements<Part, kElements>*>(from), part_lse, list, total, shape);
    });
  };
  with_row_types<__nv_bfloat16, __half>(out.type, out.data, part_out.type, part_out.data, launch);
}

template <int kElements>
void merge_sink_by(const DeviceRows& out, float* lse, const float* sink, std::span<const RowRange> rows,
                   cudaStream_t stream) {
  const Shape shape = shape_of(out, out, kElements);
  in_lists(rows, [&](const auto& list, std::int64_t total) {
    merge_sink_kernel<kElements><<<blocks_for(total * shape.heads, kTile), kThreads, 0, stream>>>(
        static_cast<Elements<float, kElements>*>(out.data), lse, sink, list, total, shape);
  });
}

}  // namespace

void launch_merge_partial(const DeviceRows& out, float* lse, const DeviceRows& part_out, const float* part_lse,
                          std::span<const RowCopy> rows, cudaStream_t stream) {
  const auto in_units = [&](int elements) { return in_units_of(elements, out) && in_units_of(elements, part_out); };
  // A unit has 16 bytes of the smaller of the two types.
  const bool floats = out.type == RowType::fp32 && part_out.type == RowType::fp32;
  if (!floats && in_units(8)) return merge_partial_by<8>(out, lse, part_out, part_lse, rows, stream);
  if (in_units(4)) return merge_partial_by<4>(out, lse, part_out, part_lse, rows, stream);
  merge_partial_by<1>(out, lse, part_out, part_lse, rows, stream);
}

void launch_merge_sink(const DeviceRows& out, float* lse, const float* sink, std::span<const RowRange> rows,
                       cudaStream_t stream) {
  if (in_units_of(4, out)) return merge_sink_by<4>(out, lse, sink, rows, stream);
  merge_sink_by<1>(out, lse, sink, rows, stream);
}

void launch_sink_gradient(const SinkGradient& call, std::span<const RowRange> rows, cudaStream_t stream) {
  static_assert(merge_math::kSinkRanges == kMostRanges);
  in_lists(rows, [&](const auto& list, std::int64_t total) {
    sink_gradient_kernel<<<static_cast<unsigned>(call.heads), merge_math::kSinkLanes, 0, stream>>>(
        call.sink, call.lse, call.delta, list, total, call.tokens, call.sums, call.gradient);
  });
}

}  // namespace cp_pool::cuda
