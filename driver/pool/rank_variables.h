// What every rank of a pool has in its environment, whoever starts it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "driver/surroundings.h"

namespace cp_pool {

// A value of CP_POOL_TAG that no other pool has; all are equally long.
std::string random_tag();

// Threads of OpenMP that wait for work spin: ranks, and pools, side by side would take the cores from each other. Adds
// the variable that says otherwise, unless the ranks' surroundings have it; nullptr: those of this process.
void add_wait_policy(std::vector<std::pair<std::string, std::string>>& variables, const Surroundings* surroundings);

// Names of the variables in the ranks' surroundings that ranks on other hosts must have as well; nullptr: those of this
// process.
std::vector<std::string> inherited_variables(const Surroundings* surroundings);

}  // namespace cp_pool
