// Sees whether this process begins an operation on a group of torch.distributed: on any group, in any thread, called
// from Python or from C++.
#pragma once

#include <string>

namespace cp_pool {

// Watches from now on. Until an operation begins, this costs every operator of torch some hundred nanoseconds.
void watch_group_operations();
// Returns the first operation that has begun since ("c10d::allreduce_"); empty if none has. The sequence numbers of
// groups would not do: those of NCCL's groups leave out what is sent to a single rank. cp-pool's own communicators,
// which call Gloo and NCCL directly, are not seen, and neither is an adapter that does that.
std::string first_group_operation();

}  // namespace cp_pool
