// Launch the kernels of cuda_kernels.h on plain pointers, since nvcc would take ten times as long with LibTorch's
// headers. The caller must check whether a launch failed.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

namespace cp_pool::verify {

void launch_fill_nearly_normal(float* values, std::uint64_t count, std::uint64_t start, cudaStream_t stream);

// Adds to *total, which is on the device. data: aligned to 8 bytes.
void launch_sum_words(const void* data, std::uint64_t bytes, std::int64_t* total, cudaStream_t stream);

}  // namespace cp_pool::verify
