#include "cp_core/comm/peer/held_memory.h"

#include <exception>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/util/Exception.h>

namespace cp_pool {

// The allocator frees nothing while a capture allocates from a private pool. This pool serves no stream, so allocations
// are made as usual.
HeldMemory::HeldMemory(c10::DeviceIndex device) : device_(device), pool_(at::cuda::graph_pool_handle()) {
  c10::cuda::CUDACachingAllocator::beginAllocateToPool(device_, pool_, [](cudaStream_t /*stream*/) { return false; });
}

HeldMemory::~HeldMemory() {
  try {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
    c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);
  } catch (const std::exception& error) {
    TORCH_WARN("the pool that holds memory back was not released: ", error.what());
  }
}

}  // namespace cp_pool
