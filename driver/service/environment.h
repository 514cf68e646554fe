// What of its client's environment a service gives to the ranks: the variables that change what a worker computes, or
// whether it starts. Everything else they have from the service, so that clients in different terminals share pools.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cp_pool::service {

using Variables = std::vector<std::pair<std::string, std::string>>;

// CUDA_* NCCL_* GLOO_* OMP_* MKL_* TORCH_* CP_POOL_* PYTHON* LD_* PATH VIRTUAL_ENV
bool matters(std::string_view name);

// Of this process: all, sorted by name.
Variables own_environment();
// "NAME=VALUE" of what matters in it.
std::vector<std::string> what_matters(const Variables& environment);

// `base` without what matters in it, and with these ("NAME=VALUE") instead: sorted by name. Throws
// std::invalid_argument for an entry that is no such text.
Variables with_what_matters(const Variables& base, const std::vector<std::string>& entries);

}  // namespace cp_pool::service
