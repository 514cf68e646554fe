#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/cuda/delay.h"

namespace cp_pool::cuda {
namespace {

__device__ std::uint64_t nanoseconds_now() {
  std::uint64_t time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void delay_kernel(std::uint64_t nanoseconds) {
  const std::uint64_t start = nanoseconds_now();
  while (nanoseconds_now() - start < nanoseconds) __nanosleep(200);
}

}  // namespace

void delay(std::int64_t nanoseconds) {
  if (nanoseconds <= 0) return;
  delay_kernel<<<1, 1, 0, c10::cuda::getCurrentCUDAStream()>>>(static_cast<std::uint64_t>(nanoseconds));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace cp_pool::cuda
