// Lists of blocks as kernel parameters, which need no upload and which a CUDA graph keeps. The units of all blocks are
// numbered through and cut into tiles; a thread block copies one tile at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>

#include "cp_core/thd/block_copy.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {

inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyUnroll = 4;
inline constexpr int kCopyTile = kCopyThreads * kCopyUnroll;

// Capacities of the list of one launch, whose parameters have at most 32 KiB. Short lists are the common ones and have
// a shorter type.
inline constexpr int kFewBlocks = 32;
inline constexpr int kMostBlocks = 480;

// A block, counted in units. A thread copies a unit at once.
struct Block {
  const void* source;
  void* target;
  std::int64_t source_stride;
  std::int64_t target_stride;
  unsigned width;
};

template <int kCapacity>
struct BlockList {
  Block blocks[kCapacity];
  std::int64_t end[kCapacity];  // the number of units in this block and those before it
  int size = 0;
};
static_assert(sizeof(BlockList<kMostBlocks>) < 32000);

template <int kCapacity>
std::int64_t units_of(const BlockList<kCapacity>& list) {
  return list.size == 0 ? 0 : list.end[list.size - 1];
}

// Appends copies to the list, which must have room for them.
template <typename Unit, int kCapacity>
void append(BlockList<kCapacity>& list, std::span<const BlockCopy> copies) {
  constexpr auto kUnit = static_cast<std::int64_t>(sizeof(Unit));
  for (const BlockCopy& copy : copies) {
    const std::int64_t units = copy.rows * (copy.width / kUnit);
    if (units == 0) continue;
    if (units > std::numeric_limits<std::int32_t>::max()) throw std::length_error("too much for one block");
    list.end[list.size] = units_of(list) + units;
    list.blocks[list.size++] = {copy.source, copy.target, copy.source_stride / kUnit, copy.target_stride / kUnit,
                                static_cast<unsigned>(copy.width / kUnit)};
  }
}

// The largest power of 2 up to 16 that divides every address, width and stride.
inline std::int64_t common_unit(std::span<const BlockCopy> copies) {
  std::uint64_t bits = 16;
  for (const BlockCopy& copy : copies) {
    if (copy.rows == 0 || copy.width == 0) continue;
    bits |= reinterpret_cast<std::uintptr_t>(copy.source) | reinterpret_cast<std::uintptr_t>(copy.target);
    bits |= static_cast<std::uint64_t>(copy.width);
    if (copy.rows > 1) bits |= static_cast<std::uint64_t>(copy.source_stride | copy.target_stride);
  }
  return static_cast<std::int64_t>(bits & (~bits + 1));
}

// Calls fn.operator()<Unit>() with the type that has this many bytes.
template <typename Fn>
void with_unit(std::int64_t bytes, Fn&& fn) {
  switch (bytes) {
    case 16:
      return fn.template operator()<uint4>();
    case 8:
      return fn.template operator()<uint2>();
    case 4:
      return fn.template operator()<std::uint32_t>();
    case 2:
      return fn.template operator()<std::uint16_t>();
    default:
      return fn.template operator()<std::uint8_t>();
  }
}

// Copies the tile that begins at unit `tile`, up to unit `end`. All reads come before the writes.
template <typename Unit, int kCapacity>
__device__ void copy_tile(const BlockList<kCapacity>& list, std::int64_t tile, std::int64_t end) {
  Unit values[kCopyUnroll];
  Unit* targets[kCopyUnroll] = {};
  int index = find_run(list, tile);
#pragma unroll
  for (int k = 0; k < kCopyUnroll; ++k) {
    const std::int64_t unit = tile + k * kCopyThreads + threadIdx.x;
    if (unit >= end) break;
    while (unit >= list.end[index]) ++index;
    const Block& block = list.blocks[index];
    const auto within = static_cast<unsigned>(unit - (index == 0 ? 0 : list.end[index - 1]));
    const unsigned row = within / block.width;
    const unsigned column = within - row * block.width;
    values[k] = static_cast<const Unit*>(block.source)[row * block.source_stride + column];
    targets[k] = static_cast<Unit*>(block.target) + row * block.target_stride + column;
  }
#pragma unroll
  for (int k = 0; k < kCopyUnroll; ++k) {
    if (targets[k] != nullptr) *targets[k] = values[k];
  }
}

}  // namespace cp_pool::cuda
