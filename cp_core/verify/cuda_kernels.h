// GPU kernels of the verification.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace cp_pool::verify {

// Sets element i of fp32 `values` to number i of the stream that begins at `start` (nearly_normal.h). The bits are the
// same as on the CPU.
void fill_nearly_normal_cuda(at::Tensor& values, std::uint64_t start);
// Returns the sum of word_term (word_sum.h) over the 8-byte words of a contiguous tensor. Waits for the device.
std::uint64_t sum_words_cuda(const at::Tensor& tensor);

}  // namespace cp_pool::verify

namespace cp_pool {

// A table of the CUDA part (cuda/cuda_part.h).
struct VerifyKernels {
  decltype(&verify::fill_nearly_normal_cuda) fill_nearly_normal;
  decltype(&verify::sum_words_cuda) sum_words;
};

}  // namespace cp_pool
