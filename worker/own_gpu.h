// Which GPU a rank computes on. Of a rank's GPUs all but its own are hidden from its process: CUDA takes a tenth of a
// second and more for each that it finds when it starts, and ranks reach each other's memory without seeing its GPU
// (comm/peer/peer_link.h, NCCL). Where a machine has fewer GPUs than ranks, neighbouring ranks share one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/protocol/environment.h"

namespace cp_pool {

struct OwnGpu {
  int index = 0;             // of those that are visible
  bool is_only = false;      // the others are hidden
  int ranks_on_it = 1;       // this one, and those that share the GPU with it
  int shared_gpus = 0;       // how many GPUs the ranks of this machine share; 0: each rank has one of its own
  std::string why_no_share;  // there are fewer GPUs than ranks, and they cannot share them: why, as a clause
};

// Which of `gpus` GPUs rank local_rank of local_world_size computes on: one each where they suffice, else as evenly as
// can be, neighbours together. gpus: at least 1.
int gpu_of_rank(int local_rank, int local_world_size, int gpus);

// Chooses, and hides the others by CUDA_VISIBLE_DEVICES unless CP_POOL_HIDE_GPUS is off; before CUDA is loaded, and
// before other threads are there. Ranks share if CP_POOL_SHARE_GPUS allows it (RankEnvironment::share_gpus), all ranks
// are on this host, and peer copies, which connect them, are not forbidden (peers_forbidden: why, or empty). Throws
// EnvironmentError: CP_POOL_HIDE_GPUS is neither on nor off.
OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, const std::string& peers_forbidden);

// The same for a machine with so many visible GPUs; hides none.
OwnGpu choose_own_gpu(const protocol::RankEnvironment& environment, int gpus, const std::string& peers_forbidden);

}  // namespace cp_pool
