// Ranks in a sentence, and in pictures made of characters.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

// Returns "rank 3", "ranks 0, 1", "ranks 0-6, 9" and the like, in ascending order.
std::string name_ranks(std::vector<int> ranks);

// Returns one character for each of the ranks that a case can have: '0' to '9', then letters, '@' and '&'. Any other
// number, which only a foreign worker can send, gives '?'.
char rank_letter(int rank);

}  // namespace cp_pool
