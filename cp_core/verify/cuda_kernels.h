// Element-wise kernels of the verification on a GPU.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace cp_pool::verify {

// Element i of fp32 `values` gets number i of the stream of inputs that begins at `start` (inputs.cpp): the same bits
// as on the CPU.
void fill_nearly_normal_cuda(at::Tensor& values, std::uint64_t start);
// The sum of word_term (word_sum.h) over a contiguous tensor's bytes. Waits for the device.
std::uint64_t sum_words_cuda(const at::Tensor& tensor);

}  // namespace cp_pool::verify

namespace cp_pool {

// A table of the CUDA part (cuda/cuda_part.h).
struct VerifyKernels {
  decltype(&verify::fill_nearly_normal_cuda) fill_nearly_normal;
  decltype(&verify::sum_words_cuda) sum_words;
};

}  // namespace cp_pool
