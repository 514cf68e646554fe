// How ranks that launchers started find rank 0's control plane: rank 0 binds a port that is free and tells the driver
// of it by its lifeline, and the driver tells the others.
#pragma once

#include <string>

#include "worker/lifeline.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

// The address under which rank 0 itself connects: the first of those that it announces.
std::string own_master_address(const Lifeline& lifeline);

// Rank 0: its control plane listens on `port`, on every address of this host. Fills in environment's master.
void announce_master(Lifeline& lifeline, protocol::RankEnvironment& environment, int port);

// Another rank: waits for rank 0's word, and fills in environment's master with the first address that answers. Throws
// ControlPlaneError, which names both ranks, their hosts and what was tried.
void find_master(Lifeline& lifeline, protocol::RankEnvironment& environment);

}  // namespace cp_pool
