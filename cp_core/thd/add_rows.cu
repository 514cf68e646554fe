#include "cp_core/thd/device_row_types.cuh"
#include "cp_core/thd/elements.cuh"
#include "cp_core/thd/row_launch.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 2;
constexpr int kTile = kThreads * kUnroll;
constexpr int kVector = 8;  // elements that a thread adds at once: 16 bytes of bf16

template <typename Sum, typename Part, int kElements>
__device__ void add_unit(Elements<Sum, kElements>& sum, const Elements<Part, kElements>& part) {
  Elements<Sum, kElements> values = sum;
  const Elements<Part, kElements> added = part;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    values.values[e] = static_cast<Sum>(static_cast<float>(values.values[e]) + static_cast<float>(added.values[e]));
  }
  sum = values;
}

// All ranges together are one line of units, cut in tiles, a block each: copy_rows.cu.
template <typename Sum, typename Part, int kElements, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(Elements<Sum, kElements>* __restrict__ sum, const Elements<Part, kElements>* __restrict__ part,
                    const __grid_constant__ CopyList<kCapacity> rows, std::int64_t total) {
  const std::int64_t tile = std::int64_t{blockIdx.x} * kTile;
  int run = find_run(rows, tile);
  for (int k = 0; k < kUnroll; ++k) {
    const std::int64_t unit = tile + k * kThreads + threadIdx.x;
    if (unit >= total) return;
    while (unit >= rows.end[run]) ++run;
    add_unit<Sum, Part, kElements>(sum[rows.target[run] + unit], part[rows.source[run] + unit]);
  }
}

template <int kElements, typename Sum, typename Part>
void launch(Sum* sum, const Part* part, std::int64_t columns, std::span<const RowCopy> rows, cudaStream_t stream) {
  auto* to = reinterpret_cast<Elements<Sum, kElements>*>(sum);
  const auto* from = reinterpret_cast<const Elements<Part, kElements>*>(part);
  in_lists(rows, columns / kElements, [&](const auto& list, std::int64_t total) {
    add_rows_kernel<Sum, Part, kElements><<<blocks_for(total, kTile), kThreads, 0, stream>>>(to, from, list, total);
  });
}

}  // namespace

void launch_add_rows(const DeviceRows& sum, const DeviceRows& part, std::span<const RowCopy> rows,
                     cudaStream_t stream) {
  const std::int64_t columns = sum.heads * sum.columns;
  with_row_types(sum, part, [&](auto* to, const auto* from) {
    if (columns % kVector == 0 && is_aligned(to, 16) && is_aligned(from, 16)) {
      launch<kVector>(to, from, columns, rows, stream);
    } else {
      launch<1>(to, from, columns, rows, stream);
    }
  });
}

}  // namespace cp_pool::cuda
