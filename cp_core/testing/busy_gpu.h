// Deliberate work on a GPU. Work after it runs late, so an operation that fails to wait for that work reads old data.
#pragma once

#include <cstdint>

namespace cp_pool::test {

// Keeps this thread's current stream busy for this long, with one thread of the device.
void keep_gpu_busy(std::int64_t nanoseconds);

// The launch of keep_gpu_busy(). stream: a cudaStream_t. It is a function of its own because LibTorch's headers would
// take nvcc ten times as long as the kernel does.
void launch_busy_kernel(std::uint64_t nanoseconds, void* stream);

}  // namespace cp_pool::test
