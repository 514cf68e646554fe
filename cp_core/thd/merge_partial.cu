#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/thd/merge_math.h"
#include "cp_core/thd/row_kernels.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;  // heads of rows that a block merges

struct Shape {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t units = 0;  // of a head of a row: floats, or four of them at once
  int lanes = 1;           // threads that share a head of a row, a power of 2, at most a warp
};

// What one head of one row is multiplied with, and where it is.
struct Scales {
  std::int64_t unit;
  float keep;
  float add;
};

__device__ float merged(float out, float part, const Scales& scales) {
  return out * scales.keep + part * scales.add;
}
__device__ float4 merged(const float4& out, const float4& part, const Scales& scales) {
  return {merged(out.x, part.x, scales), merged(out.y, part.y, scales), merged(out.z, part.z, scales),
          merged(out.w, part.w, scales)};
}
__device__ float scaled(float out, float keep) {
  return out * keep;
}
__device__ float4 scaled(const float4& out, float keep) {
  return {out.x * keep, out.y * keep, out.z * keep, out.w * keep};
}

// Exponentials once a row and head, on the first threads of a block; then all threads go over the tile's units.
// weigh(token, head, scales) updates lse and gives the scales; change(unit, scales) writes a unit of out.
template <int kCapacity, typename Weigh, typename Change>
__device__ void for_each_row_and_head(const RangeList<kCapacity>& rows, std::int64_t total, const Shape& shape,
                                      const Weigh& weigh, const Change& change) {
  __shared__ Scales tile[kTile];
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  const int count = static_cast<int>(min(std::int64_t{kTile}, total * shape.heads - first));
  if (static_cast<int>(threadIdx.x) < count) {
    const std::int64_t item = first + threadIdx.x;
    const std::int64_t row = item / shape.heads;
    const std::int64_t head = item - row * shape.heads;
    const std::int64_t token = row_at(rows, row);
    Scales scales{};
    scales.unit = (token * shape.heads + head) * shape.units;
    weigh(token, head, scales);
    tile[threadIdx.x] = scales;
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % shape.lanes;
  for (int i = static_cast<int>(threadIdx.x) / shape.lanes; i < count; i += kThreads / shape.lanes) {
    const Scales scales = tile[i];
    for (std::int64_t unit = lane; unit < shape.units; unit += shape.lanes) change(scales.unit + unit, scales);
  }
}

template <typename Unit, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    merge_partial_kernel(Unit* __restrict__ out, float* __restrict__ lse, const Unit* __restrict__ part_out,
                         const float* __restrict__ part_lse, const __grid_constant__ RangeList<kCapacity> rows,
                         std::int64_t total, Shape shape) {
  for_each_row_and_head(
      rows, total, shape,
      [&](std::int64_t token, std::int64_t head, Scales& scales) {
        const std::int64_t at = head * shape.tokens + token;
        const double merged_lse = merge_math::log_add_exp(lse[at], part_lse[at]);
        scales.keep = merge_math::weight(lse[at], merged_lse);
        scales.add = merge_math::weight(part_lse[at], merged_lse);
        lse[at] = static_cast<float>(merged_lse);
      },
      [&](std::int64_t at, const Scales& scales) { out[at] = merged(out[at], part_out[at], scales); });
}

template <typename Unit, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    merge_sink_kernel(Unit* __restrict__ out, float* __restrict__ lse, const float* __restrict__ sink,
                      const __grid_constant__ RangeList<kCapacity> rows, std::int64_t total, Shape shape) {
  for_each_row_and_head(
      rows, total, shape,
      [&](std::int64_t token, std::int64_t head, Scales& scales) {
        const std::int64_t at = head * shape.tokens + token;
        const double merged_lse = merge_math::log_add_exp(lse[at], sink[head]);
        scales.keep = merge_math::weight(lse[at], merged_lse);
        lse[at] = static_cast<float>(merged_lse);
      },
      [&](std::int64_t at, const Scales& scales) { out[at] = scaled(out[at], scales.keep); });
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

Shape shape_of(const at::Tensor& out, int floats) {
  Shape shape{.tokens = out.size(0), .heads = out.size(1), .units = out.size(2) / floats};
  while (shape.lanes < 32 && shape.lanes < shape.units) shape.lanes *= 2;
  return shape;
}

bool by_fours(const at::Tensor& out, const at::Tensor& part_out) {
  return out.size(2) % 4 == 0 && is_aligned(out.const_data_ptr(), 16) && is_aligned(part_out.const_data_ptr(), 16);
}

template <typename Unit>
void launch_merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                          std::span<const RowRange> rows) {
  const Shape shape = shape_of(out, sizeof(Unit) / sizeof(float));
  const auto stream = c10::cuda::getCurrentCUDAStream();
  in_lists(rows, [&](const auto& list, std::int64_t total) {
    merge_partial_kernel<<<blocks_for(total * shape.heads, kTile), kThreads, 0, stream>>>(
        static_cast<Unit*>(out.mutable_data_ptr()), lse.mutable_data_ptr<float>(),
        static_cast<const Unit*>(part_out.const_data_ptr()), part_lse.const_data_ptr<float>(), list, total, shape);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

template <typename Unit>
void launch_merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows) {
  const Shape shape = shape_of(out, sizeof(Unit) / sizeof(float));
  const auto stream = c10::cuda::getCurrentCUDAStream();
  in_lists(rows, [&](const auto& list, std::int64_t total) {
    merge_sink_kernel<<<blocks_for(total * shape.heads, kTile), kThreads, 0, stream>>>(
        static_cast<Unit*>(out.mutable_data_ptr()), lse.mutable_data_ptr<float>(), sink.const_data_ptr<float>(), list,
        total, shape);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace

void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                   std::span<const RowRange> rows) {
  for (const at::Tensor& tensor : {out, lse, part_out, part_lse}) check(tensor);
  if (by_fours(out, part_out)) return launch_merge_partial<float4>(out, lse, part_out, part_lse, rows);
  launch_merge_partial<float>(out, lse, part_out, part_lse, rows);
}

void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows) {
  for (const at::Tensor& tensor : {out, lse, sink}) check(tensor);
  if (by_fours(out, out)) return launch_merge_sink<float4>(out, lse, sink, rows);
  launch_merge_sink<float>(out, lse, sink, rows);
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
