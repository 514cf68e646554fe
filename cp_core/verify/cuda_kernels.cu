#include <algorithm>

#include "cp_core/verify/cuda_kernels_launch.h"
#include "cp_core/verify/nearly_normal.h"
#include "cp_core/verify/word_sum.h"

namespace cp_pool::verify {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kMostBlocks = 65536;

unsigned blocks_for(std::uint64_t items) {
  return static_cast<unsigned>(std::min((items + kThreads - 1) / kThreads, kMostBlocks));
}

__global__ void fill_kernel(float* values, std::uint64_t count, std::uint64_t start) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    values[i] = nearly_normal(start, i);
  }
}

// Integer sums do not depend on their order, so the result is deterministic in spite of atomics.
__global__ void sum_words_kernel(const unsigned char* data, std::uint64_t bytes, unsigned long long* total) {
  const std::uint64_t words = (bytes + 7) / 8;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  unsigned long long sum = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += stride) {
    std::uint64_t word = 0;
    if (i * 8 + 8 <= bytes) {
      word = reinterpret_cast<const std::uint64_t*>(data)[i];
    } else {
      for (std::uint64_t at = i * 8; at < bytes; ++at) word |= std::uint64_t{data[at]} << (8 * (at - i * 8));
    }
    sum += word_term(word, i);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(0xFFFFFFFFU, sum, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

}  // namespace

void launch_fill_nearly_normal(float* values, std::uint64_t count, std::uint64_t start, cudaStream_t stream) {
  fill_kernel<<<blocks_for(count), kThreads, 0, stream>>>(values, count, start);
}

void launch_sum_words(const void* data, std::uint64_t bytes, std::int64_t* total, cudaStream_t stream) {
  sum_words_kernel<<<blocks_for((bytes + 7) / 8), kThreads, 0, stream>>>(static_cast<const unsigned char*>(data), bytes,
                                                                         reinterpret_cast<unsigned long long*>(total));
}

}  // namespace cp_pool::verify
