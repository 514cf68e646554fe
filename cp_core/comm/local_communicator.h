// Ranks as threads of one process: the whole Communicator contract without a network, for tests. What a receive tensor
// gets is written in wait() and not before, so a wait that is left out always shows.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// One communicator for each of `size` ranks of a group.
std::vector<std::shared_ptr<Communicator>> make_local_communicators(int size);

// The groups of each of `size` ranks, inner and outer included where they exist.
std::vector<CpGroups> make_local_groups(int size);

// Runs fn(groups, rank) on `size` threads, one ATen thread each, within `limit`. When a rank throws, the others'
// communicators are aborted, and the first exception is rethrown after all threads have ended.
void run_ranks(int size, const std::function<void(const CpGroups&, int rank)>& fn,
               std::chrono::milliseconds limit = std::chrono::minutes(1));

}  // namespace cp_pool
