// Environment variables of ranks: which they get whoever starts them, which matter to them, and which of these may be
// written to files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cp_pool {

using Variables = std::vector<std::pair<std::string, std::string>>;  // names and values

struct ProcessEnvironment {
  std::filesystem::path folder;  // working directory
  Variables environment;         // all variables

  bool operator==(const ProcessEnvironment&) const = default;
};

// How long a pool has from its start until it is ready; python/cp_pool/start_limit.py reads it.
inline constexpr const char* kEnvStartTimeout = "CP_POOL_START_TIMEOUT_MS";

// Returns a value for CP_POOL_TAG that no other pool has. All values have the same length.
std::string random_tag();

// Adds OMP_WAIT_POLICY=passive, unless the environment of the ranks sets the variable; nullptr: the environment of this
// process. By default OpenMP threads that wait for work spin, so ranks and pools that run side by side would take the
// cores from each other.
void add_wait_policy(Variables& variables, const ProcessEnvironment* process);

// Returns the names of the variables in the ranks' environment that ranks on other hosts must get as well; nullptr:
// those of this process.
std::vector<std::string> inherited_variables(const ProcessEnvironment* process);

// Returns all environment variables of this process, sorted by name.
Variables own_environment();

// Returns `base` with `entries` ("NAME=VALUE") added; an entry replaces a variable of its name. Sorted by name.
Variables with_entries(Variables base, const std::vector<std::string>& entries);

// Whether the variable can change what a worker computes or whether it starts: CUDA_* NCCL_* GLOO_* OMP_* MKL_* TORCH_*
// CUBLAS_* CP_POOL_* PYTHON* LD_* PATH VIRTUAL_ENV.
bool matters_to_ranks(std::string_view name);

// Whether the variable may be a secret, judged by its name (a token, key, password and the like) or its value (a URL
// with a password).
bool may_be_secret(std::string_view name, std::string_view value);

// Whether the variable describes this machine and is useless on another: PATH, PYTHON*, LD_*, VIRTUAL_ENV,
// CUDA_VISIBLE_DEVICES.
bool is_of_this_machine(std::string_view name);

// Returns the variables of this process that matter to ranks and are no secrets, as "NAME=VALUE", sorted.
std::vector<std::string> environment_to_keep();

}  // namespace cp_pool
