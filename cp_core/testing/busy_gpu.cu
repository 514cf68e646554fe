#include "cp_core/testing/busy_gpu.h"

namespace cp_pool::test {
namespace {

__device__ std::uint64_t nanoseconds_now() {
  std::uint64_t time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void busy_kernel(std::uint64_t nanoseconds) {
  const std::uint64_t start = nanoseconds_now();
  while (nanoseconds_now() - start < nanoseconds) __nanosleep(200);
}

}  // namespace

void launch_busy_kernel(std::uint64_t nanoseconds, void* stream) {
  busy_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(nanoseconds);
}

}  // namespace cp_pool::test
