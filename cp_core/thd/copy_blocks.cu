#include <algorithm>
#include <limits>

#include "cp_core/thd/row_launch.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr int kTile = kThreads * kUnroll;

// Of one launch, as its parameters: at most 32 KiB. Short lists, the common ones, get a short type.
constexpr int kFewBlocks = 32;
constexpr int kMostBlocks = 480;

// In units: what is copied at once.
struct Block {
  const void* source;
  void* target;
  std::int64_t end;  // of the units of this block and those before it
  std::int64_t source_stride;
  std::int64_t target_stride;
  unsigned width;
};

template <int kCapacity>
struct BlockList {
  Block blocks[kCapacity];
  int size = 0;
};
static_assert(sizeof(BlockList<kMostBlocks>) < 32000);

template <int kCapacity>
__device__ int find_block(const BlockList<kCapacity>& list, std::int64_t unit) {
  int first = 0;
  int last = list.size - 1;
  while (first < last) {
    const int middle = (first + last) / 2;
    if (unit < list.blocks[middle].end) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

// All blocks together are one line of units, cut in tiles.
template <typename Unit, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    copy_blocks_kernel(const __grid_constant__ BlockList<kCapacity> list, std::int64_t total) {
  const std::int64_t tile = std::int64_t{blockIdx.x} * kTile;
  int index = find_block(list, tile);
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    const std::int64_t unit = tile + k * kThreads + threadIdx.x;
    if (unit >= total) return;
    while (unit >= list.blocks[index].end) ++index;
    const Block& block = list.blocks[index];
    const auto within = static_cast<unsigned>(unit - (index == 0 ? 0 : list.blocks[index - 1].end));
    const unsigned row = within / block.width;
    const unsigned column = within - row * block.width;
    static_cast<Unit*>(block.target)[row * block.target_stride + column] =
        static_cast<const Unit*>(block.source)[row * block.source_stride + column];
  }
}

template <typename Unit, int kCapacity>
void launch(std::span<const BlockCopy> copies, cudaStream_t stream) {
  constexpr auto kUnit = static_cast<std::int64_t>(sizeof(Unit));
  while (!copies.empty()) {
    const auto some = copies.first(std::min<std::size_t>(kCapacity, copies.size()));
    copies = copies.subspan(some.size());
    BlockList<kCapacity> list;
    std::int64_t total = 0;
    for (const BlockCopy& copy : some) {
      const std::int64_t units = copy.rows * (copy.width / kUnit);
      if (units == 0) continue;
      if (units > std::numeric_limits<std::int32_t>::max()) throw std::length_error("too much for one block");
      total += units;
      list.blocks[list.size++] = {copy.source,
                                  copy.target,
                                  total,
                                  copy.source_stride / kUnit,
                                  copy.target_stride / kUnit,
                                  static_cast<unsigned>(copy.width / kUnit)};
    }
    if (total == 0) continue;
    copy_blocks_kernel<Unit><<<blocks_for(total, kTile), kThreads, 0, stream>>>(list, total);
  }
}

template <typename Unit>
void launch(std::span<const BlockCopy> copies, cudaStream_t stream) {
  if (copies.size() <= kFewBlocks) return launch<Unit, kFewBlocks>(copies, stream);
  launch<Unit, kMostBlocks>(copies, stream);
}

// The largest power of 2 up to 16 that divides all.
std::int64_t common_unit(std::span<const BlockCopy> copies) {
  std::uint64_t bits = 16;
  for (const BlockCopy& copy : copies) {
    if (copy.rows == 0 || copy.width == 0) continue;
    bits |= reinterpret_cast<std::uintptr_t>(copy.source) | reinterpret_cast<std::uintptr_t>(copy.target);
    bits |= static_cast<std::uint64_t>(copy.width);
    if (copy.rows > 1) bits |= static_cast<std::uint64_t>(copy.source_stride | copy.target_stride);
  }
  return static_cast<std::int64_t>(bits & (~bits + 1));
}

}  // namespace

void launch_copy_blocks(std::span<const BlockCopy> copies, cudaStream_t stream) {
  switch (common_unit(copies)) {
    case 16:
      return launch<uint4>(copies, stream);
    case 8:
      return launch<uint2>(copies, stream);
    case 4:
      return launch<std::uint32_t>(copies, stream);
    case 2:
      return launch<std::uint16_t>(copies, stream);
    default:
      return launch<std::uint8_t>(copies, stream);
  }
}

}  // namespace cp_pool::cuda
