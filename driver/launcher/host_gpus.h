// Restricts the ranks of a pool to the GPUs of the pool's slots, on hosts whose GPUs several pools share.
#pragma once

#include <string>
#include <vector>

#include "driver/launcher/launcher.h"

namespace cp_pool {

// Returns the worker's command line with a shell script in front that sets CUDA_VISIBLE_DEVICES from the host's slots:
// slot k is the k-th GPU that is visible on the host. A host finds itself in `hosts` by SLURMD_NODENAME, its name or
// one of its addresses; on a host that is not listed the script fails without starting the worker. Returns `worker`
// unchanged if there are no hosts or no slots.
std::vector<std::string> on_gpus_of_slots(const std::vector<HostShare>& hosts, std::vector<std::string> worker);

}  // namespace cp_pool
