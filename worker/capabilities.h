// The capabilities and versions of this worker, for its ready event.
#pragma once

#include <c10/core/Device.h>
#include <nlohmann/json.hpp>

namespace cp_pool {

// Backends by device, the comm types, layouts and dtypes that cases may name, and the case fields beyond protocol
// version 1. prepares: whether it acts on `prepare`. shared_gpus: how many GPUs its ranks share; 0: each has one of its
// own. diagnoses: whether it can be asked why a case failed. Every pass has figures of every rank.
nlohmann::json capabilities(const at::Device& device, bool prepares, int shared_gpus, bool diagnoses);
// Versions of the libraries, by name. For a GPU: of CUDA, cuDNN and NCCL too, and its name.
nlohmann::json versions(const at::Device& device);

}  // namespace cp_pool
