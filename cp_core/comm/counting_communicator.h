// Communicators that count what their rank sends to others.
#pragma once

#include <cstdint>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Wraps every communicator of `groups`, which do the work. Each operation adds to `sent`, on the thread that calls it,
// the bytes of this rank's own data that have to reach other ranks, once for each: the least that any way to carry the
// operation out makes a rank send. A barrier adds nothing. `sent` must outlive the groups.
CpGroups count_sent(const CpGroups& groups, std::int64_t& sent);

}  // namespace cp_pool
