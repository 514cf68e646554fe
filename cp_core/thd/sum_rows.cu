#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cp_core/thd/elements.cuh"
#include "cp_core/thd/row_launch.h"
#include "cp_core/thd/row_lists.cuh"

namespace cp_pool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 2;
constexpr int kTile = kThreads * kUnroll;
constexpr int kVector = 8;  // elements that a thread adds at once: 16 bytes of bf16

// Capacities of the list of one launch, whose parameters have at most 32 KiB. Short lists are the common ones and have
// a shorter type.
constexpr int kFewSegments = 32;
constexpr int kFewTerms = 128;
constexpr int kMostSegments = 640;
constexpr int kMostTerms = 2048;

// Segments, counted in units, of which a thread adds one at a time. The units of all segments are numbered through.
template <int kSegments, int kTerms>
struct SegmentList {
  std::int64_t end[kSegments];     // the number of units in this segment and those before it
  std::int64_t target[kSegments];  // what to add to a unit's number to get its place in the sum
  std::uintptr_t terms[kTerms];    // the address that unit number 0 would have in the part
  int first_term[kSegments + 1];
  int size = 0;
};
using ShortList = SegmentList<kFewSegments, kFewTerms>;
using LongList = SegmentList<kMostSegments, kMostTerms>;
static_assert(sizeof(LongList) < 32000);

// Adds kCount terms. All are read before the first is added.
template <int kCount, typename Part, int kElements>
__device__ void add_terms(float (&totals)[kElements], const std::uintptr_t* terms, std::int64_t unit) {
  using Unit = Elements<Part, kElements>;
  Unit parts[kCount];
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
    parts[t] = *reinterpret_cast<const Unit*>(terms[t] + static_cast<std::uintptr_t>(unit) * sizeof(Unit));
  }
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
#pragma unroll
    for (int e = 0; e < kElements; ++e) totals[e] += static_cast<float>(parts[t].values[e]);
  }
}

template <typename Sum, typename Part, int kElements>
__device__ void sum_unit(Elements<Sum, kElements>& sum, bool empty, const std::uintptr_t* terms, int count,
                         std::int64_t unit) {
  float totals[kElements] = {};
  if (!empty) {
    const Elements<Sum, kElements> before = sum;
#pragma unroll
    for (int e = 0; e < kElements; ++e) totals[e] = static_cast<float>(before.values[e]);
  }
  for (; count > 4; count -= 4, terms += 4) add_terms<4, Part>(totals, terms, unit);
  switch (count) {
    case 4:
      add_terms<4, Part>(totals, terms, unit);
      break;
    case 3:
      add_terms<3, Part>(totals, terms, unit);
      break;
    case 2:
      add_terms<2, Part>(totals, terms, unit);
      break;
    case 1:
      add_terms<1, Part>(totals, terms, unit);
      break;
    default:
      break;
  }
  Elements<Sum, kElements> result;
#pragma unroll
  for (int e = 0; e < kElements; ++e) result.values[e] = static_cast<Sum>(totals[e]);
  sum = result;
}

// The units are cut into tiles, one for each thread block, as in copy_blocks.cu.
template <typename Sum, typename Part, int kElements, typename List>
__global__ void __launch_bounds__(kThreads) sum_rows_kernel(Elements<Sum, kElements>* __restrict__ sum, bool empty,
                                                            const __grid_constant__ List list, std::int64_t total) {
  const std::int64_t tile = std::int64_t{blockIdx.x} * kTile;
  int segment = find_run(list, tile);
  for (int k = 0; k < kUnroll; ++k) {
    const std::int64_t unit = tile + k * kThreads + threadIdx.x;
    if (unit >= total) return;
    while (unit >= list.end[segment]) ++segment;
    const int first = list.first_term[segment];
    sum_unit<Sum, Part, kElements>(sum[list.target[segment] + unit], empty, list.terms + first,
                                   list.first_term[segment + 1] - first, unit);
  }
}

// The parts, the units of a row, and the bytes of a unit in a part.
struct Units {
  std::span<const void* const> parts;
  std::int64_t of_row;
  std::size_t bytes;
};

template <int kSegments, int kTerms>
bool fits(const SegmentList<kSegments, kTerms>& list, const RowSegment& segment) {
  return list.size < kSegments && segment.terms.size() <= static_cast<std::size_t>(kTerms - list.first_term[list.size]);
}

template <int kSegments, int kTerms>
std::int64_t append(SegmentList<kSegments, kTerms>& list, std::int64_t total, const RowSegment& segment,
                    const Units& units) {
  int term = list.first_term[list.size];
  for (const auto& [part, source] : segment.terms) {
    // Unsigned, since an address before the part's first may wrap around; adding the unit's number wraps it back.
    list.terms[term++] = reinterpret_cast<std::uintptr_t>(units.parts[part]) +
                         static_cast<std::uintptr_t>(source * units.of_row - total) * units.bytes;
  }
  const std::int64_t end = total + segment.count * units.of_row;
  list.target[list.size] = segment.target * units.of_row - total;
  list.end[list.size] = end;
  list.first_term[++list.size] = term;
  return end;
}

template <typename List, typename Launch>
void in_segment_lists_of(std::span<const RowSegment> segments, const Units& units, const Launch& launch) {
  while (!segments.empty()) {
    List list;
    list.first_term[0] = 0;
    std::int64_t total = 0;
    while (!segments.empty() && fits(list, segments.front())) {
      total = append(list, total, segments.front(), units);
      segments = segments.subspan(1);
    }
    if (total == 0) throw std::length_error("too many parts of one row for a launch");
    launch(list, total);
  }
}

template <typename Launch>
void in_segment_lists(std::span<const RowSegment> segments, const Units& units, const Launch& launch) {
  std::size_t terms = 0;
  for (const RowSegment& segment : segments) terms += segment.terms.size();
  if (segments.size() <= kFewSegments && terms <= kFewTerms) {
    return in_segment_lists_of<ShortList>(segments, units, launch);
  }
  in_segment_lists_of<LongList>(segments, units, launch);
}

template <int kElements, typename Sum, typename Part>
void launch(Sum* sum, const RowSums& call, std::int64_t columns, cudaStream_t stream) {
  auto* to = reinterpret_cast<Elements<Sum, kElements>*>(sum);
  const Units units{call.parts, columns / kElements, sizeof(Elements<Part, kElements>)};
  in_segment_lists(call.segments, units, [&]<typename List>(const List& list, std::int64_t total) {
    sum_rows_kernel<Sum, Part, kElements, List>
        <<<blocks_for(total, kTile), kThreads, 0, stream>>>(to, call.empty, list, total);
  });
}

}  // namespace

void launch_sum_rows(const RowSums& call, cudaStream_t stream) {
  const std::int64_t columns = call.sum.heads * call.sum.columns;
  bool aligned = columns % kVector == 0 && is_aligned(call.sum.data, 16);
  for (const void* part : call.parts) aligned = aligned && is_aligned(part, 16);
  const auto launch_by = [&]<typename Sum, typename Part>(Sum* to, const Part*) {
    if (aligned) {
      launch<kVector, Sum, Part>(to, call, columns, stream);
    } else {
      launch<1, Sum, Part>(to, call, columns, stream);
    }
  };
  with_row_types<__nv_bfloat16, __half>(call.sum.type, call.sum.data, call.part_type, nullptr, launch_by);
}

}  // namespace cp_pool::cuda
