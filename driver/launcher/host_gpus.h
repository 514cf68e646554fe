// On hosts whose GPUs several pools share, the ranks of a pool see those of its slots alone.
#pragma once

#include <string>
#include <vector>

#include "driver/launcher/launcher.h"

namespace cp_pool {

// The worker's command line with words of a shell before it that set CUDA_VISIBLE_DEVICES as the host's slots say: slot
// k is the k-th GPU of those that are visible there. Hosts know themselves by SLURMD_NODENAME, their name or one of
// their addresses; on one that is not in the list the worker is not started. As it is without hosts, or without slots.
std::vector<std::string> on_gpus_of_slots(const std::vector<HostShare>& hosts, std::vector<std::string> worker);

}  // namespace cp_pool
