// Calls of the CUDA driver that have no counterpart in the runtime. Each is looked up when it is first used, since
// programs must also start where there is no driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <span>

namespace cp_pool::cuda {

struct Allocation {
  const std::byte* first = nullptr;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  // unique in the process, also among allocations that have been freed
};

// Returns the allocation of this process that contains `address`. Throws c10::Error if there is none.
Allocation allocation_of(const void* address);
// Returns the number of the allocation that contains `address`; 0 if there is none now.
std::uint64_t allocation_number(const void* address);

using StreamOperation = CUstreamBatchMemOpParams;
// Returns an operation that writes a 32-bit word.
StreamOperation write_word(void* device_address, std::uint32_t value);
// Returns an operation that waits until a bit of `bits` is set in the 32-bit word.
StreamOperation wait_for_bits(void* device_address, std::uint32_t bits);
// Enqueues the operations in order. To all devices a write is visible after all earlier writes of the stream. Throws
// c10::Error.
void enqueue(std::span<StreamOperation> operations, CUstream stream);

}  // namespace cp_pool::cuda
