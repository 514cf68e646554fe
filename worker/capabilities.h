// What this worker can do and is made of, for its ready event.
#pragma once

#include <c10/core/Device.h>
#include <nlohmann/json.hpp>

namespace cp_pool {

// Backends by device, and the comm types, layouts, dtypes, softmax types and bias shapes that cases may name.
nlohmann::json capabilities(const at::Device& device);
// Versions of the libraries, by name. For a GPU: of CUDA, cuDNN and NCCL too, and its name.
nlohmann::json versions(const at::Device& device);

}  // namespace cp_pool
