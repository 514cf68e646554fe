// The dual-chunk partition of a sequence: for n ranks it is split into 2 n chunks, and rank r owns chunks r and 2 n - 1
// - r. Causal attention then costs every rank the same.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cp_pool {

// The number of chunks. The padded length of what is split is a multiple of it.
constexpr std::int64_t dual_chunks(int ranks) {
  return std::int64_t{2} * ranks;
}

// The chunk that is the first (half 0) or second (half 1) one that the rank owns.
constexpr int dual_chunk(int ranks, int rank, int half) {
  return half == 0 ? rank : 2 * ranks - 1 - rank;
}

constexpr int owner_of_chunk(int ranks, int chunk) {
  return std::min(chunk, 2 * ranks - 1 - chunk);
}

}  // namespace cp_pool
