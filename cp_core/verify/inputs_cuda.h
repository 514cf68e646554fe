// The inputs' numbers made on a GPU.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace cp_pool::verify {

// As CudaPart::fill_nearly_normal.
void fill_nearly_normal_cuda(at::Tensor& values, std::uint64_t start);

}  // namespace cp_pool::verify
