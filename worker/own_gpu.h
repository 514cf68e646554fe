// Chooses the GPU that a rank computes on, and hides the other GPUs from the rank's process. At start CUDA needs at
// least a tenth of a second for each visible GPU, and ranks reach each other's memory without seeing each other's GPUs
// (comm/peer/peer_link.h, NCCL). If a machine has fewer GPUs than ranks, neighbouring ranks share one.
#pragma once

#include <string>

#include "worker/protocol/environment.h"

namespace cp_pool {

struct OwnGpu {
  int index = 0;               // index among the visible GPUs
  bool is_only = false;        // the other GPUs are hidden
  int ranks_on_it = 1;         // number of ranks that use this GPU, this rank included
  int shared_gpus = 0;         // how many GPUs the ranks of this machine share; 0: each rank has one of its own
  std::string share_obstacle;  // as a clause: why ranks cannot share GPUs, if there are fewer GPUs than ranks
};

// Returns the GPU, of `gpus` GPUs, for rank local_rank of local_world_size. Each rank gets one of its own if there are
// enough; else ranks are spread as evenly as possible, and neighbours share. gpus is at least 1.
int gpu_of_rank(int local_rank, int local_world_size, int gpus);

// Chooses the GPU, and hides the others by setting CUDA_VISIBLE_DEVICES unless CP_POOL_HIDE_GPUS is off. Must be called
// before CUDA is loaded and before the process has other threads. Ranks share GPUs if CP_POOL_SHARE_GPUS allows it
// (RankEnvironment::share_gpus), all ranks are on this host, and peer copies, which connect such ranks, are allowed
// (peers_forbidden is empty, else it says why they are not). Throws EnvironmentError if CP_POOL_HIDE_GPUS is neither on
// nor off.
OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, const std::string& peers_forbidden);

// Chooses in the same way for a machine with `gpus` visible GPUs, and hides none.
OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, int gpus, const std::string& peers_forbidden);

}  // namespace cp_pool
