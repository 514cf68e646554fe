// The communicators of GPU ranks. Operations are enqueued on a stream of the communicator's own that waits for the
// caller's current stream; Work::wait makes the current stream wait for them, and never blocks the host.
#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "cp_core/comm/communicator.h"

namespace c10d {
class Store;
}

namespace cp_pool {

// Collective, on this thread's current device: returns when all `size` ranks are connected. The sub-groups are split
// off the first communicator; the groups of one rank are aborted together. Keys in the store start with `prefix`; use a
// fresh one after an abort. Throws CommError.
CpGroups make_nccl_groups(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, int rank, int size,
                          std::chrono::milliseconds connect_timeout);

}  // namespace cp_pool
