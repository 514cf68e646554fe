// Several elements that a thread moves at once.
#pragma once

namespace cp_pool::cuda {

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) Elements {
  T values[kCount];
};

}  // namespace cp_pool::cuda
