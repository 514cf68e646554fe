// Communicators of ranks that are threads of one process, without a network. A receive tensor is written in wait() and
// not before, so a missing wait always shows.
//
// On a GPU all ranks share the device. An operation copies its data on the rank's current stream. wait() writes the
// received data on the stream that is current then, after the peers' copies and after all work that the rank's stream
// had when the operation was called. The ranks may therefore use streams of their own or the same one. Only host
// threads wait for each other; streams wait only for work that is enqueued already, so they cannot deadlock.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <c10/core/Device.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

struct LocalOptions {
  at::Device device = at::kCPU;  // the device of the ranks; synchronize() waits for its current stream
  bool windows = false;          // whether ranks have windows (comm/windows.h)
  // If set, each rank holds it, and lets others have it while it waits for them.
  std::shared_ptr<std::mutex> turn = nullptr;
};

// Returns the groups of each of `size` ranks, with inner and outer groups where they exist. An abort is of all groups.
std::vector<CpGroups> make_local_groups(int size, const LocalOptions& options = {});

}  // namespace cp_pool
