#include "cp_core/thd/elements.cuh"
#include "cp_core/thd/row_launch.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr int kTile = kThreads * kUnroll;

// A copy of rows moves consecutive units on both sides. The units of all copies are therefore numbered through and cut
// into tiles, one for each thread block. Most tiles lie within one copy.
template <typename Unit, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const Unit* __restrict__ source, Unit* __restrict__ target,
                const __grid_constant__ CopyList<kCapacity> copies, std::int64_t total) {
  const std::int64_t tile = std::int64_t{blockIdx.x} * kTile;
  int run = find_run(copies, tile);
  if (tile + kTile <= copies.end[run]) {
    const Unit* from = source + copies.source[run] + tile + threadIdx.x;
    Unit* to = target + copies.target[run] + tile + threadIdx.x;
    Unit units[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) units[k] = from[k * kThreads];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) to[k * kThreads] = units[k];
    return;
  }
  for (std::int64_t unit = tile + threadIdx.x; unit < tile + kTile && unit < total; unit += kThreads) {
    while (unit >= copies.end[run]) ++run;
    target[copies.target[run] + unit] = source[copies.source[run] + unit];
  }
}

template <typename Unit>
void copy_units(const void* source, void* target, std::int64_t row_bytes, std::span<const RowCopy> copies,
                cudaStream_t stream) {
  const auto* from = static_cast<const Unit*>(source);
  auto* to = static_cast<Unit*>(target);
  in_lists(copies, row_bytes / static_cast<std::int64_t>(sizeof(Unit)), [&](const auto& list, std::int64_t total) {
    copy_kernel<<<blocks_for(total, kTile), kThreads, 0, stream>>>(from, to, list, total);
  });
}

}  // namespace

void launch_copy_rows(const void* source, void* target, std::int64_t row_bytes, std::span<const RowCopy> copies,
                      cudaStream_t stream) {
  const auto fits = [&](std::size_t bytes) {
    return row_bytes % static_cast<std::int64_t>(bytes) == 0 && is_aligned(source, bytes) && is_aligned(target, bytes);
  };
  if (fits(16)) return copy_units<uint4>(source, target, row_bytes, copies, stream);
  if (fits(8)) return copy_units<uint2>(source, target, row_bytes, copies, stream);
  if (fits(4)) return copy_units<std::uint32_t>(source, target, row_bytes, copies, stream);
  if (fits(2)) return copy_units<std::uint16_t>(source, target, row_bytes, copies, stream);
  copy_units<std::uint8_t>(source, target, row_bytes, copies, stream);
}

}  // namespace cp_pool::cuda
