// Records the operations that this process begins on groups of torch.distributed: on any group, in any thread, called
// from Python or from C++.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "worker/rank_messages.h"

namespace cp_pool {

// Forgets what has been recorded, and records the operations that begin from now on, `most` of them. Until then this
// costs every operator of torch some hundred nanoseconds.
void watch_group_operations(std::size_t most);
// Returns what has been recorded; nothing if there were more operations than `most`. The sequence numbers of groups
// would not do: those of NCCL's groups leave out what is sent to a single rank. cp-pool's own communicators, which call
// Gloo and NCCL directly, are not seen, and neither is an adapter that does that.
std::optional<std::vector<GroupOperation>> group_operations();
// Returns the name of the first operation that was recorded; empty if there is none.
std::string first_group_operation();

}  // namespace cp_pool
