// The functions by which cp_core and the worker use the GPU of the current thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <c10/core/Device.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/cuda/delay.h"

namespace cp_pool {

struct CudaMemory {
  std::size_t allocated_bytes = 0;  // in tensors of this process
  std::size_t reserved_bytes = 0;   // held by this process's caching allocator
  std::size_t device_bytes = 0;     // the size of the device's memory
  std::size_t free_bytes = 0;       // held by no process; memory that an allocator caches is not free
};

// Functions of the CUDA part. Code outside the part calls them through cuda_device().
namespace cuda {

// Makes device `index` of the visible ones (CUDA_VISIBLE_DEVICES) this thread's, and creates its context. Throws
// CudaUnavailable if there is no such device, no driver or only one that is too old.
void use_device(int index);
int visible_devices();  // 0 without a driver
// Whether device `index` is in exclusive-process mode.
bool takes_one_process(int index);
// Returns e.g. "NVIDIA H200, compute capability 9.0, 140 GiB".
std::string device_name(int index);
// Returns the versions of CUDA, its driver, cuDNN and NCCL as loaded.
std::string versions();
CudaMemory memory();
// Waits for everything on the current device, without a deadline. For measurements only.
void synchronize();
// Resets the device before a case: seeds its random generator and releases cached memory.
void reset(std::uint64_t seed);
// Frees the memory that the caching allocator caches. No other rank may have any of it open
// (Communicator::checked_barrier).
void release_cached_memory();

}  // namespace cuda

struct CudaDevice {
  decltype(&cuda::use_device) use_device;
  decltype(&cuda::visible_devices) visible_devices;
  decltype(&cuda::takes_one_process) takes_one_process;
  decltype(&cuda::device_name) device_name;
  decltype(&cuda::versions) versions;
  decltype(&cuda::memory) memory;
  decltype(&cuda::synchronize) synchronize;
  decltype(&cuda::reset) reset;
  decltype(&cuda::release_cached_memory) release_cached_memory;
  decltype(&cuda::random_delay) random_delay;
  decltype(&cuda::set_stream_delays) set_stream_delays;
};

// Returns the table. Throws CudaUnavailable as cuda_part() does.
inline const CudaDevice& cuda_device() {
  return cuda_part<CudaDevice>();
}

// Marks a point between operations on the current stream of a device: calls random_delay() on a GPU, and does nothing
// on a CPU.
inline void delay_point(const at::Device& device) {
  if (device.is_cuda()) cuda_device().random_delay();
}

}  // namespace cp_pool
