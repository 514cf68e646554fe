// Where ranks share a GPU, no device memory may be freed between the enqueueing of an exchange and its end: cudaFree
// and cudaIpcCloseMemHandle wait for everything on the device, and so for a peer that may never come.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>

namespace cp_pool {

// During its lifetime LibTorch's caching allocator frees no memory of the device. An allocation that finds no memory
// fails at once, whereas the allocator would otherwise free its cache and try again.
class HeldMemory {
 public:
  explicit HeldMemory(c10::DeviceIndex device);
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory();

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t pool_;
};

}  // namespace cp_pool
