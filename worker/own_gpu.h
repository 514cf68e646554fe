// Of a rank's GPUs all but its own are hidden from its process: CUDA takes a tenth of a second and more for each that
// it finds when it starts, and ranks reach each other's memory without seeing its GPU (comm/peer_link.h, NCCL).
#pragma once

#include <optional>
#include <string>

#include "worker/protocol/environment.h"

namespace cp_pool {

struct OwnGpu {
  int index = 0;         // of those that are visible
  bool is_only = false;  // the others are hidden
};

// What CUDA_VISIBLE_DEVICES has to be for a rank to see its own GPU alone: the one that it would have among all, which
// is number local_rank. visible: what it is now, if it is set; devices: how many this machine seems to have, if it is
// not. Nothing unless there is one for each of the ranks of this machine.
std::optional<std::string> name_of_own_gpu(const std::optional<std::string>& visible, int devices, int local_rank,
                                           int local_world_size);

// Sets CUDA_VISIBLE_DEVICES, for a rank on a GPU, unless CP_POOL_HIDE_GPUS is off; before CUDA is loaded, and before
// other threads are there. Throws EnvironmentError: CP_POOL_HIDE_GPUS is neither on nor off.
OwnGpu hide_other_gpus(const protocol::RankEnvironment& environment);

}  // namespace cp_pool
