// Element-wise kernels of the verification on a GPU.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace cp_pool::verify {

// As in CudaPart.
void fill_nearly_normal_cuda(at::Tensor& values, std::uint64_t start);
std::uint64_t sum_words_cuda(const at::Tensor& tensor);

}  // namespace cp_pool::verify
