// Lists of rows as kernel parameters, which need no upload and which a CUDA graph keeps. A launch takes at most
// kMostRanges ranges; longer lists take several launches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "cp_core/partition.h"

namespace cp_pool::cuda {

// Parameters are copied at every launch, so short lists, which are the common ones, have a shorter type.
inline constexpr int kFewRanges = 64;
inline constexpr int kMostRanges = 1024;

// Runs of consecutive numbers. Number i of the concatenated runs is in the first run whose end is greater than i. The
// parameters of a launch have at most 32 KiB.
template <int kCapacity>
struct RangeList {
  std::int64_t end[kCapacity];     // the end of the run in the concatenation
  std::int64_t offset[kCapacity];  // what to add to a number of the concatenation to get the row
  int size = 0;
};
template <int kCapacity>
struct CopyList {
  std::int64_t end[kCapacity];
  std::int64_t source[kCapacity];  // source and target are offsets, as in RangeList
  std::int64_t target[kCapacity];
  int size = 0;
};
static_assert(sizeof(CopyList<kMostRanges>) < 32000);

template <typename List>
__device__ int find_run(const List& list, std::int64_t number) {
  int first = 0;
  int last = list.size - 1;
  while (first < last) {
    const int middle = (first + last) / 2;
    if (number < list.end[middle]) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

// The row of number i of the concatenated ranges.
template <int kCapacity>
__device__ std::int64_t row_at(const RangeList<kCapacity>& list, std::int64_t i) {
  return i + list.offset[find_run(list, i)];
}

template <int kCapacity>
std::int64_t append(RangeList<kCapacity>& list, std::int64_t total, const RowRange& range) {
  list.end[list.size] = total + range.count;
  list.offset[list.size] = range.row - total;
  ++list.size;
  return total + range.count;
}

template <int kCapacity>
std::int64_t append(CopyList<kCapacity>& list, std::int64_t total, const RowCopy& copy) {
  list.end[list.size] = total + copy.count;
  list.source[list.size] = copy.source - total;
  list.target[list.size] = copy.target - total;
  ++list.size;
  return total + copy.count;
}

// Calls launch(list, total) for the ranges, in as many lists as they need. total: the count of numbers in the list.
// Lists without rows are skipped.
template <template <int> typename List, int kCapacity, typename Range, typename Launch>
void in_lists_of(std::span<const Range> ranges, const Launch& launch) {
  while (!ranges.empty()) {
    const auto some = ranges.first(std::min<std::size_t>(kCapacity, ranges.size()));
    ranges = ranges.subspan(some.size());
    List<kCapacity> list;
    std::int64_t total = 0;
    for (const Range& range : some) {
      if (range.count > 0) total = append(list, total, range);
    }
    if (total > 0) launch(list, total);
  }
}

template <typename Launch>
void in_lists(std::span<const RowRange> ranges, const Launch& launch) {
  if (ranges.size() <= kFewRanges) return in_lists_of<RangeList, kFewRanges>(ranges, launch);
  in_lists_of<RangeList, kMostRanges>(ranges, launch);
}

template <typename Launch>
void in_lists(std::span<const RowCopy> copies, const Launch& launch) {
  if (copies.size() <= kFewRanges) return in_lists_of<CopyList, kFewRanges>(copies, launch);
  in_lists_of<CopyList, kMostRanges>(copies, launch);
}

inline unsigned blocks_for(std::int64_t items, std::int64_t items_per_block) {
  const std::int64_t blocks = (items + items_per_block - 1) / items_per_block;
  if (blocks >= (std::int64_t{1} << 31)) throw std::length_error("too many rows for one launch");
  return static_cast<unsigned>(blocks);
}

}  // namespace cp_pool::cuda
