// Makes the communicators of a worker group.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/gpu_groups.h"
#include "worker/control_plane.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

// The store keys of one generation of communicators start with this.
std::string generation_prefix(int generation);

struct ConnectOptions {
  GpuGroupOptions gpu;                 // of ranks on GPUs
  std::function<void()> on_connected;  // called before the proof
};

// Collective: Gloo for ranks on CPUs, NCCL for ranks on GPUs. Connects all ranks within `limit` and proves it by an
// all-reduce. `store` is used only during the call. Throws CommError.
CpGroups connect_groups(const protocol::RankEnvironment& environment, const at::Device& device,
                        const c10::intrusive_ptr<c10d::Store>& store, int generation, std::chrono::milliseconds limit,
                        const ConnectOptions& options = {});

}  // namespace cp_pool
