// The launches of cuda_kernels.h, on plain pointers: LibTorch's headers would cost nvcc ten times what the kernels do.
// Whether a launch failed is for the caller to ask.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

namespace cp_pool::verify {

void launch_fill_nearly_normal(float* values, std::uint64_t count, std::uint64_t start, cudaStream_t stream);

// Adds to *total. data: at a multiple of 8 bytes.
void launch_sum_words(const void* data, std::uint64_t bytes, std::int64_t* total, cudaStream_t stream);

}  // namespace cp_pool::verify
