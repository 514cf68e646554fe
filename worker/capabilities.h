// The capabilities and versions of this worker, for its ready event.
#pragma once

#include <c10/core/Device.h>
#include <nlohmann/json.hpp>

namespace cp_pool {

// Returns the backends by device, the comm types, layouts and dtypes that cases may name, and the case fields beyond
// protocol version 1. It also says that every pass has figures of every rank.
// prepares: whether the worker acts on `prepare` requests.
// shared_gpus: how many GPUs the ranks share; 0 if each rank has one of its own.
// diagnoses: whether the worker can say why a case failed.
nlohmann::json capabilities(const at::Device& device, bool prepares, int shared_gpus, bool diagnoses);
// Returns the versions of the libraries, by name. For a GPU also those of CUDA, cuDNN and NCCL, and the GPU's name.
nlohmann::json versions(const at::Device& device);

}  // namespace cp_pool
