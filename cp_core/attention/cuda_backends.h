// Which attention backend runs a case on a GPU.
#pragma once

#include <memory>
#include <string>

#include "cases/case.h"
#include "cp_core/attention/backend.h"

namespace cp_pool {

// On the current device.
std::unique_ptr<AttentionBackend> make_cuda_backend(Backend backend);

// Why the backend of this case cannot run it on the current device, as a sentence that quotes the library where it is
// the library that refuses; empty if it can.
std::string cuda_backend_skip_reason(const Case& c);

// Of the CUDA part (cuda/cuda_part.h).
struct CudaBackends {
  decltype(&make_cuda_backend) make;
  decltype(&cuda_backend_skip_reason) skip_reason;
};

}  // namespace cp_pool
