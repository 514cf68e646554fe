// Decides which environment variables the ranks get from a client of the service: those that change what a worker
// computes or whether it starts (rank_environment.h). All other variables are the service's own, so that clients in
// different terminals share pools.
#pragma once

#include <string>
#include <vector>

#include "driver/rank_environment.h"

namespace cp_pool::service {

// Returns the variables of `environment` that matter to ranks, as "NAME=VALUE".
std::vector<std::string> what_matters(const Variables& environment);

// Returns `base` with the variables that matter to ranks replaced by those of `entries` ("NAME=VALUE"), sorted by name.
// Throws std::invalid_argument for an entry that has no such form.
Variables with_what_matters(const Variables& base, const std::vector<std::string>& entries);

}  // namespace cp_pool::service
