// Runs ranks as threads of this process, each with its groups (local_communicator.h).
#pragma once

#include <chrono>
#include <functional>

#include "cp_core/testing/local_communicator.h"

namespace cp_pool {

// Runs fn(groups, rank) on `size` threads with one ATen thread each. `limit` is the deadline of their communication. If
// a rank throws, the communicators of the others are aborted, and the first exception is rethrown after all threads
// have ended. one_at_a_time: only one rank works at any time, while the others wait for messages or for their turn.
void run_ranks(int size, const std::function<void(const CpGroups&, int rank)>& fn,
               std::chrono::milliseconds limit = std::chrono::minutes(1), LocalOptions options = {},
               bool one_at_a_time = false);

}  // namespace cp_pool
