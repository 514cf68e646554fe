// Several elements that a thread loads or stores at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cp_pool::cuda {

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) Elements {
  T values[kCount];
};

inline bool is_aligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

}  // namespace cp_pool::cuda
