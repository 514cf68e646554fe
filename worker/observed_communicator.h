// Wraps communicators to record which operation the rank is in, for reports of a rank that hangs, and to call a hook
// before every operation, for injected faults.
#pragma once

#include <functional>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Wraps every communicator of `groups`, and the strided groups that are made from them later. before_operation runs on
// the calling thread and may throw.
CpGroups observe(const CpGroups& groups, const std::function<void()>& before_operation);

}  // namespace cp_pool
