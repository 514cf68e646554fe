// Environment variables that every rank of a pool gets, whoever starts it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "driver/surroundings.h"

namespace cp_pool {

// How long a pool has from its start until it is ready; python/cp_pool/start_limit.py reads it.
inline constexpr const char* kEnvStartTimeout = "CP_POOL_START_TIMEOUT_MS";

// Returns a value for CP_POOL_TAG that no other pool has. All values have the same length.
std::string random_tag();

// Adds OMP_WAIT_POLICY=passive, unless the surroundings of the ranks set the variable; nullptr: the environment of this
// process. By default OpenMP threads that wait for work spin, so ranks and pools that run side by side would take the
// cores from each other.
void add_wait_policy(std::vector<std::pair<std::string, std::string>>& variables, const Surroundings* surroundings);

// Returns the names of the variables in the ranks' surroundings that ranks on other hosts must get as well; nullptr:
// those of this process.
std::vector<std::string> inherited_variables(const Surroundings* surroundings);

}  // namespace cp_pool
