// What every rank of a pool has in its environment, whoever starts it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cp_pool {

// A value of CP_POOL_TAG that no other pool has; all are equally long.
std::string random_tag();

// Threads of OpenMP that wait for work spin: ranks, and pools, side by side would take the cores from each other. Adds
// the variable that says otherwise, unless this process has it.
void add_wait_policy(std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace cp_pool
