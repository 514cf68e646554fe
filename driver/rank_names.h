// Ranks in a sentence.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

// "rank 3", "ranks 0, 1", "ranks 0-6, 9": in the order of their numbers.
std::string name_ranks(std::vector<int> ranks);

}  // namespace cp_pool
