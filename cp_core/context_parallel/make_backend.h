// Chooses among all attention backends. The folder of the interface (attention/) does not know its implementations.
#pragma once

#include <memory>

#include "cases/case.h"
#include "cp_core/attention/backend.h"

namespace cp_pool {

// Creates the backend that runs the cases of `backend` on `device`. On CPUs this is always the math backend.
std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device);

}  // namespace cp_pool
