#include <algorithm>

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/verify/cuda_kernels.h"
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

// Integer sums are the same in every order, so atomics do not make this random.
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

void fill_nearly_normal_cuda(at::Tensor& values, std::uint64_t start) {
  const auto count = static_cast<std::uint64_t>(values.numel());
  if (count == 0) return;
  fill_kernel<<<blocks_for(count), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(values.mutable_data_ptr<float>(),
                                                                                     count, start);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

std::uint64_t sum_words_cuda(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 8 == 0,
              "sum_words needs a contiguous tensor at a multiple of 8 bytes");
  at::Tensor total = at::zeros({1}, tensor.options().dtype(at::kLong));
  sum_words_kernel<<<blocks_for((tensor.nbytes() + 7) / 8), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      static_cast<const unsigned char*>(tensor.const_data_ptr()), tensor.nbytes(),
      reinterpret_cast<unsigned long long*>(total.mutable_data_ptr<std::int64_t>()));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return static_cast<std::uint64_t>(total.item<std::int64_t>());
}

}  // namespace cp_pool::verify
