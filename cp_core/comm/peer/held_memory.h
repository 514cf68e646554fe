// Between the enqueueing of an exchange and its end no memory of the device may be given back: cudaFree and
// cudaIpcCloseMemHandle wait for everything on the device, and so for a peer that may never come.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>

namespace cp_pool {

// While it lives, LibTorch's caching allocator of the device gives nothing back. An allocation that finds no memory
// fails at once; otherwise the allocator would free what it has cached and try again.
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
