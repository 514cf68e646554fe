#include <algorithm>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/verify/inputs_cuda.h"
#include "cp_core/verify/nearly_normal.h"

namespace cp_pool::verify {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kMostBlocks = 65536;

__global__ void fill_kernel(float* values, std::uint64_t count, std::uint64_t start) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    values[i] = nearly_normal(start, i);
  }
}

}  // namespace

void fill_nearly_normal_cuda(at::Tensor& values, std::uint64_t start) {
  const std::int64_t count = values.numel();
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
  fill_kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(values.mutable_data_ptr<float>(),
                                                                          static_cast<std::uint64_t>(count), start);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace cp_pool::verify
