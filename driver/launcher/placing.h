// Decides on which hosts the ranks of a pool run.
#pragma once

#include <vector>

#include "driver/launcher/launcher.h"

namespace cp_pool {

// Returns the number of slots of each host, in order.
std::vector<int> slots_of(const std::vector<HostShare>& hosts);

// Returns the hosts of a pool that holds these slots, each with its number of ranks. Slots are numbered from host to
// host. Without slots, and if all hosts together have fewer slots than there are ranks, the hosts are filled in order
// and the remaining ranks are spread evenly over them.
std::vector<HostShare> place(int ranks, const std::vector<int>& slots, const std::vector<HostShare>& hosts);

}  // namespace cp_pool
