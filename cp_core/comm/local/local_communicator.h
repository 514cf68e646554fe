// Ranks as threads of one process, without a network: a group of one rank for rehearsals, groups of several for tests.
// What a receive tensor gets is written in wait() and not before, so a wait that is left out always shows.
//
// On a GPU all ranks share the device. An operation copies what it sends, on the stream that is the rank's current one
// when it is called; wait() writes what was received on the one that is current then, behind the peers' copies and
// behind all that the rank's stream had when the operation was called. So every rank may have a stream of its own, or
// all the same one. Only hosts wait for each other: streams wait for what is enqueued already, and cannot deadlock.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

struct LocalOptions {
  at::Device device = at::kCPU;  // whose current stream synchronize() waits for; a CPU has nothing to wait for
  bool windows = false;          // whether has_windows(), so that put_all can be called
};

// One communicator for each of `size` ranks of a group.
std::vector<std::shared_ptr<Communicator>> make_local_communicators(int size, const LocalOptions& options = {});

// The groups of each of `size` ranks, inner and outer included where they exist.
std::vector<CpGroups> make_local_groups(int size, const LocalOptions& options = {});

}  // namespace cp_pool
