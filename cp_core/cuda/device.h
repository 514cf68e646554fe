// The GPU of this thread: what the rest of cp_core and the worker ask of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <c10/core/Device.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/cuda/delay.h"

namespace cp_pool {

struct CudaMemory {
  std::size_t allocated_bytes = 0;  // by tensors
  std::size_t reserved_bytes = 0;   // by the caching allocator
  std::size_t device_bytes = 0;     // that the device has
  std::size_t free_bytes = 0;       // that nobody has; what this process caches is not among it
};

// Functions of the CUDA part. Others reach them by cuda_device().
namespace cuda {

// Makes device `index` of the visible ones (CUDA_VISIBLE_DEVICES) this thread's, and creates its context. Throws
// CudaUnavailable: no driver, driver too old, no such device.
void use_device(int index);
int visible_devices();  // 0 without a driver
// Device `index` is in exclusive-process mode.
bool takes_one_process(int index);
// e.g. "NVIDIA H200, compute capability 9.0, 140 GiB"
std::string device_name(int index);
// The versions of CUDA, its driver, cuDNN and NCCL, as loaded.
std::string versions();
CudaMemory memory();
// Waits for everything on the current device. For measurements: it knows no deadline.
void synchronize();
// Gives cached memory back and seeds the generators: before every case.
void reset(std::uint64_t seed);
// No other rank may have any of it open (Communicator::checked_barrier).
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
  decltype(&cuda::delay) delay;
  decltype(&cuda::random_delay) random_delay;
  decltype(&cuda::set_stream_delays) set_stream_delays;
};

// As cuda_part().
inline const CudaDevice& cuda_device() {
  return cuda_part<CudaDevice>();
}

// Stands between operations on the current stream of a device: a random_delay() on a GPU, nothing on a CPU.
inline void delay_point(const at::Device& device) {
  if (device.is_cuda()) cuda_device().random_delay();
}

}  // namespace cp_pool
