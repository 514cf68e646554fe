// Ranks that are threads of one process, without a network. The worker rehearses cases with a group of one rank; tests
// run groups of several. A receive tensor is written in wait() and not before, so a missing wait always shows.
//
// On a GPU all ranks share the device. An operation copies its data on the rank's current stream; wait() writes the
// received data on the stream that is current then, after the peers' copies and after all work that the rank's stream
// had when the operation was called. So every rank may have a stream of its own, or all the same one. Only host threads
// wait for each other: streams wait for work that is enqueued already, and cannot deadlock.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

struct LocalOptions {
  at::Device device = at::kCPU;  // whose current stream synchronize() waits for; a CPU has nothing to wait for
  bool windows = false;          // whether ranks have windows (comm/peer/windows.h)
};

// One communicator for each of `size` ranks of a group.
std::vector<std::shared_ptr<Communicator>> make_local_communicators(int size, const LocalOptions& options = {});

// The groups of each of `size` ranks, inner and outer included where they exist, strided ones when they are asked for.
std::vector<CpGroups> make_local_groups(int size, const LocalOptions& options = {});

}  // namespace cp_pool
