// Wraps communicators to record which operation the rank is in, for reports of a rank that hangs, and to call a hook
// before every operation, for injected faults.
#pragma once

#include <functional>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Wraps every communicator of `groups`, and the groups that their ranks are divided into later. before_operation runs
// on the calling thread and may throw.
CpGroups observe(const CpGroups& groups, const std::function<void()>& before_operation);

}  // namespace cp_pool
