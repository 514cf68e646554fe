// What of its client's environment a service gives to the ranks: the variables that change what a worker computes, or
// whether it starts. Everything else they have from the service, so that clients in different terminals share pools.
#pragma once

#include <string>
#include <vector>

#include "driver/rank_environment.h"

namespace cp_pool::service {

// "NAME=VALUE" of what matters in it.
std::vector<std::string> what_matters(const Variables& environment);

// `base` without what matters in it, and with these ("NAME=VALUE") instead: sorted by name. Throws
// std::invalid_argument for an entry that is no such text.
Variables with_what_matters(const Variables& base, const std::vector<std::string>& entries);

}  // namespace cp_pool::service
