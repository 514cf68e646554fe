// Makes the communicators of a worker group, and wraps them to record which operation the rank is in, for reports of a
// rank that hangs.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/nccl/gpu_groups.h"
#include "worker/control_plane.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

// Returns the prefix of the store keys of one generation of communicators.
std::string generation_prefix(int generation);

struct ConnectOptions {
  bool shares_gpu = false;             // make_gpu_groups
  std::function<void()> on_connected;  // called when the ranks are connected, before the all-reduce
};

// Connects all ranks within `limit`, over Gloo for CPU ranks and NCCL for GPU ranks, and proves the connection by an
// all-reduce. Collective over all ranks. `store` is used only during the call. Throws CommError.
CpGroups connect_groups(const protocol::RankEnvironment& environment, const at::Device& device,
                        const c10::intrusive_ptr<c10d::Store>& store, int generation, std::chrono::milliseconds limit,
                        const ConnectOptions& options = {});

// Wraps every communicator of `groups`, and the groups that their ranks are divided into later. before_operation, for
// injected faults, runs on the calling thread and may throw. of: the end of the groups' names.
CpGroups observe(const CpGroups& groups, const std::function<void()>& before_operation, const std::string& of = "");

}  // namespace cp_pool
