#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/thd/elements.cuh"
#include "cp_core/thd/merge_math.h"
#include "cp_core/thd/row_kernels.h"
#include "cp_core/thd/row_lists.cuh"
#include "cp_core/thd/row_types.h"

namespace cp_pool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;  // heads of rows that a block merges

struct Shape {
  std::int64_t tokens = 0;
  std::int64_t part_tokens = 0;
  std::int64_t heads = 0;
  std::int64_t units = 0;  // of a head of a row: elements, or several of them at once
  int lanes = 1;           // threads that share a head of a row, a power of 2, at most a warp
};

// What one head of one row is multiplied with, and where it is.
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

// Number i of the concatenated runs: the row of the target, and of the part.
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

// Exponentials once a row and head, on the first threads of a block; then all threads go over the tile's units.
// weigh(at, part_at, head, scales) updates lse, where its element is at, and gives the scales; change(unit, part unit,
// scales) writes a unit of out.
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

// One block a head. `sums` carries the sum from one list of rows to the next.
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
    gradient[head] = static_cast<float>(0.0 - sums[head]);  // not -0
  }
}

void check(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == at::kFloat,
              "contiguous fp32 on a GPU expected, not ", tensor.toString(), " on ", tensor.device());
}

Shape shape_of(const at::Tensor& out, const at::Tensor& part_out, int elements) {
  Shape shape{
      .tokens = out.size(0), .part_tokens = part_out.size(0), .heads = out.size(1), .units = out.size(2) / elements};
  while (shape.lanes < 32 && shape.lanes < shape.units) shape.lanes *= 2;
  return shape;
}

bool in_units_of(int elements, const at::Tensor& out) {
  return out.size(2) % elements == 0 && is_aligned(out.const_data_ptr(), 16);
}

template <int kElements>
void launch_merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                          std::span<const RowCopy> rows) {
  const Shape shape = shape_of(out, part_out, kElements);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  with_row_types(out, part_out, [&](auto* to, const auto* from) {
    using Out = std::remove_cvref_t<decltype(*to)>;
    using Part = std::remove_cvref_t<decltype(*from)>;
    in_lists(rows, 1, [&](const auto& list, std::int64_t total) {
      merge_partial_kernel<Out, Part, kElements><<<blocks_for(total * shape.heads, kTile), kThreads, 0, stream>>>(
          reinterpret_cast<Elements<Out, kElements>*>(to), lse.mutable_data_ptr<float>(),
          reinterpret_cast<const Elements<Part, kElements>*>(from), part_lse.const_data_ptr<float>(), list, total,
          shape);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
}

template <int kElements>
void launch_merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows) {
  const Shape shape = shape_of(out, out, kElements);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  in_lists(rows, [&](const auto& list, std::int64_t total) {
    merge_sink_kernel<kElements><<<blocks_for(total * shape.heads, kTile), kThreads, 0, stream>>>(
        reinterpret_cast<Elements<float, kElements>*>(out.mutable_data_ptr<float>()), lse.mutable_data_ptr<float>(),
        sink.const_data_ptr<float>(), list, total, shape);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace

void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                   std::span<const RowCopy> rows) {
  for (const at::Tensor& tensor : {lse, part_lse}) check(tensor);
  const auto in_units = [&](int elements) { return in_units_of(elements, out) && in_units_of(elements, part_out); };
  // 16 bytes of what is smaller.
  const bool floats = out.scalar_type() == at::kFloat && part_out.scalar_type() == at::kFloat;
  if (!floats && in_units(8)) return launch_merge_partial<8>(out, lse, part_out, part_lse, rows);
  if (in_units(4)) return launch_merge_partial<4>(out, lse, part_out, part_lse, rows);
  launch_merge_partial<1>(out, lse, part_out, part_lse, rows);
}

void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows) {
  for (const at::Tensor& tensor : {out, lse, sink}) check(tensor);
  if (in_units_of(4, out)) return launch_merge_sink<4>(out, lse, sink, rows);
  launch_merge_sink<1>(out, lse, sink, rows);
}

at::Tensor sink_gradient(const at::Tensor& sink, const at::Tensor& lse, const at::Tensor& delta,
                         std::span<const RowRange> rows) {
  static_assert(merge_math::kSinkRanges == kMostRanges);
  for (const at::Tensor& tensor : {sink, lse, delta}) check(tensor);
  const std::int64_t heads = lse.size(0);
  const at::Tensor gradient = at::zeros({heads}, sink.options());
  const at::Tensor sums = at::zeros({heads}, sink.options().dtype(at::kDouble));
  const auto stream = c10::cuda::getCurrentCUDAStream();
  in_lists(rows, [&](const auto& list, std::int64_t total) {
    sink_gradient_kernel<<<static_cast<unsigned>(heads), merge_math::kSinkLanes, 0, stream>>>(
        sink.const_data_ptr<float>(), lse.const_data_ptr<float>(), delta.const_data_ptr<float>(), list, total,
        lse.size(1), sums.mutable_data_ptr<double>(), gradient.mutable_data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return gradient;
}

}  // namespace cp_pool::cuda
