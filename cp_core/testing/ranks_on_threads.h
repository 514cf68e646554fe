// Ranks as threads of this process, each with its groups (local_communicator.h).
#pragma once

#include <chrono>
#include <functional>

#include "cp_core/comm/local/local_communicator.h"

namespace cp_pool {

// Runs fn(groups, rank) on `size` threads, one ATen thread each, within `limit`. When a rank throws, the others'
// communicators are aborted, and the first exception is rethrown after all threads have ended.
// one_at_a_time: one rank is at work while the others wait for messages, or for their turn.
void run_ranks(int size, const std::function<void(const CpGroups&, int rank)>& fn,
               std::chrono::milliseconds limit = std::chrono::minutes(1), const LocalOptions& options = {},
               bool one_at_a_time = false);

}  // namespace cp_pool
