// Communicators that count what their rank sends to others.
#pragma once

#include <cstdint>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Wraps every communicator of `groups`, which still carry out the operations. Each operation adds to `sent`, on the
// calling thread, the bytes of this rank's own data that have to reach other ranks, counted once for each of those
// ranks. This is the least that a rank has to send, however the operation is carried out. A barrier adds nothing.
// `sent` must outlive the groups.
CpGroups count_sent(const CpGroups& groups, std::int64_t& sent);

}  // namespace cp_pool
