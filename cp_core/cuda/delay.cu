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

void launch_delay(std::uint64_t nanoseconds, CUstream_st* stream) {
  delay_kernel<<<1, 1, 0, stream>>>(nanoseconds);
}

}  // namespace cp_pool::cuda
