// The calls of CUDA's driver that the runtime has no counterpart of, found when first used: programs must start where
// there is no driver.
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

// That holds `address`, of this process. Throws c10::Error if none does.
Allocation allocation_of(const void* address);
// What `address`, the first byte of an allocation, belongs to now; 0: nothing.
std::uint64_t allocation_number(const void* address);

using StreamOperation = CUstreamBatchMemOpParams;
// value: of 32 bits.
StreamOperation write_word(void* device_address, std::uint32_t value);
// Until a bit of `bits` is set.
StreamOperation wait_for_bits(void* device_address, std::uint32_t bits);
// Enqueues them, in order. What a write announces is there before it, for all devices. Throws c10::Error.
void enqueue(std::span<StreamOperation> operations, CUstream stream);

}  // namespace cp_pool::cuda
