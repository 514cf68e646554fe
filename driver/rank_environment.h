// Which variables of the environment matter to ranks, and which of these may be written down.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cp_pool {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Of this process: all, sorted by name.
Variables own_environment();

// `base` with these ("NAME=VALUE") added or put in the place of others: sorted by name.
Variables with_entries(Variables base, const std::vector<std::string>& entries);

// Whether the variable changes what a worker computes, or whether it starts: CUDA_* NCCL_* GLOO_* OMP_* MKL_* TORCH_*
// CUBLAS_* CP_POOL_* PYTHON* LD_* PATH VIRTUAL_ENV.
bool matters_to_ranks(std::string_view name);

// Whether it may be a secret, by its name (a token, key, password and the like) or by its value (a URL with a
// password).
bool may_be_secret(std::string_view name, std::string_view value);

// Whether it says where things are on this machine, which is of no use on another: PATH, PYTHON*, LD_*, VIRTUAL_ENV,
// CUDA_VISIBLE_DEVICES.
bool is_of_this_machine(std::string_view name);

// Of the environment of this process what matters to ranks and is no secret: "NAME=VALUE", sorted.
std::vector<std::string> environment_to_keep();

}  // namespace cp_pool
