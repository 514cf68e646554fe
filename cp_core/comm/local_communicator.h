// Ranks as threads of one process: the whole Communicator contract without a network, for tests. What a receive tensor
// gets is written in wait() and not before, so a wait that is left out always shows.
//
// On a GPU all ranks share the device. An operation copies what it sends, on the stream that is the rank's current one
// when it is called; wait() writes what was received on the one that is current then, behind the peers' copies and
// behind all that the rank's stream had when the operation was called. So every rank may have a stream of its own, or
// all the same one. Only hosts wait for each other: streams wait for what is enqueued already, and cannot deadlock.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

struct LocalOptions {
  at::Device device = at::kCPU;  // whose current stream synchronize() waits for; a CPU has nothing to wait for
  bool windows = false;          // whether has_windows(), so that put_all can be called
  bool one_at_a_time = false;    // run_ranks: one rank is at work while the others wait for messages, or their turn
};

// One communicator for each of `size` ranks of a group.
std::vector<std::shared_ptr<Communicator>> make_local_communicators(int size, const LocalOptions& options = {});

// The groups of each of `size` ranks, inner and outer included where they exist.
std::vector<CpGroups> make_local_groups(int size, const LocalOptions& options = {});

// Runs fn(groups, rank) on `size` threads, one ATen thread each, within `limit`. When a rank throws, the others'
// communicators are aborted, and the first exception is rethrown after all threads have ended.
void run_ranks(int size, const std::function<void(const CpGroups&, int rank)>& fn,
               std::chrono::milliseconds limit = std::chrono::minutes(1), const LocalOptions& options = {});

}  // namespace cp_pool
