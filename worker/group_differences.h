// Compares the operations that ranks have begun on their groups.
#pragma once

#include <string>
#include <vector>

#include "worker/rank_messages.h"

namespace cp_pool {

// Returns the first differences between these ranks in the order of their operations, such as "rank 2 left without
// entering all_gather #7; the others wait in it"; empty if there are none. A collective is counted among all
// collectives of its group, a message among those from one rank to another. waited: the ranks had all the time of the
// case, so that a rank which has not begun an operation of the others is a difference too.
std::string group_differences(const std::vector<GroupHistory>& histories, bool waited);

// Returns the last operation that the rank has begun, as "all_gather #7 of float32 [4, 16], on ranks 0, 1"; empty if it
// has begun none.
std::string last_group_operation(const GroupHistory& history);

}  // namespace cp_pool
