// The attention backends of GPUs.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "cases/case.h"
#include "cp_core/attention/backend.h"

namespace cp_pool {

// Declares make_math_backend() and so on. Each is defined in the backend's own file.
#define CP_POOL_BACKEND(identifier, name) std::unique_ptr<AttentionBackend> make_##identifier##_backend();
#include "cases/backends.def"
#undef CP_POOL_BACKEND

inline std::unique_ptr<AttentionBackend> make_cuda_backend(Backend backend) {
  static constexpr std::array kMakers{
#define CP_POOL_BACKEND(identifier, name) &make_##identifier##_backend,
#include "cases/backends.def"
#undef CP_POOL_BACKEND
  };
  return kMakers.at(static_cast<std::size_t>(backend))();
}

// A table of the CUDA part (cuda/cuda_part.h).
struct CudaBackends {
  decltype(&make_cuda_backend) make;
};

}  // namespace cp_pool
