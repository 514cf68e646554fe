// Calls of the CUDA driver that have no counterpart in the runtime. They are looked up when first used, since programs
// must start where there is no driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <span>

namespace cp_pool::cuda {

struct Allocation {
  const std::byte* first = nullptr;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  // the process gives no number twice
};

// Returns the allocation of this process that holds `address`. Throws c10::Error if none does.
Allocation allocation_of(const void* address);
// Returns the number of the allocation whose first byte is `address`; 0 if there is none now.
std::uint64_t allocation_number(const void* address);

using StreamOperation = CUstreamBatchMemOpParams;
// An operation that writes a word of 32 bits.
StreamOperation write_word(void* device_address, std::uint32_t value);
// An operation that waits until a bit of `bits` is set in the word.
StreamOperation wait_for_bits(void* device_address, std::uint32_t bits);
// Enqueues the operations in order. A write comes after all earlier writes of the stream, as all devices see it. Throws
// c10::Error.
void enqueue(std::span<StreamOperation> operations, CUstream stream);

}  // namespace cp_pool::cuda
