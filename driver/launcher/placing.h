// Which hosts the ranks of a pool are on.
#pragma once

#include <vector>

#include "driver/launcher/launcher.h"

namespace cp_pool {

// How many slots each host has, in order.
std::vector<int> slots_of(const std::vector<HostShare>& hosts);

// The hosts of a pool that holds these slots, each with its ranks; slots are numbered from host to host. Without slots,
// and where all hosts together have fewer slots than there are ranks, hosts are filled in order, and what is left over
// is dealt out evenly.
std::vector<HostShare> place(int ranks, const std::vector<int>& slots, const std::vector<HostShare>& hosts);

}  // namespace cp_pool
