// The attention backends of GPUs.
#pragma once

#include <memory>

#include "cases/case.h"
#include "cp_core/attention/backend.h"

namespace cp_pool {

std::unique_ptr<AttentionBackend> make_cuda_backend(Backend backend);

// Declares make_math_backend() and so on. Each is defined in the backend's own file.
#define CP_POOL_BACKEND(identifier, name) std::unique_ptr<AttentionBackend> make_##identifier##_backend();
#include "cases/backends.def"
#undef CP_POOL_BACKEND

// A table of the CUDA part (cuda/cuda_part.h).
struct CudaBackends {
  decltype(&make_cuda_backend) make;
};

}  // namespace cp_pool
