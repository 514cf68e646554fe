// Which attention backend runs a case on a GPU.
#pragma once

#include <memory>
#include <string>

#include "cases/case.h"
#include "cp_core/attention/backend.h"

namespace cp_pool {

// On the current device.
std::unique_ptr<AttentionBackend> make_cuda_backend(Backend backend);

// As CudaPart::skip_reason.
std::string cuda_backend_skip_reason(const Case& c);

}  // namespace cp_pool
