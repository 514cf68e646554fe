// Writes lists of ranks for messages.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

// Returns "rank 3", "ranks 0, 1", "ranks 0-6, 9" and the like, in ascending order.
std::string name_ranks(std::vector<int> ranks);

}  // namespace cp_pool
