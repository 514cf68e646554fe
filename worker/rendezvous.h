// How ranks that a launcher started find rank 0's control plane. Rank 0 binds a free port and tells the driver over its
// lifeline; the driver tells the other ranks.
#pragma once

#include <string>

#include "worker/lifeline.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

// Returns the address to which rank 0 itself connects: the first of the addresses that it announces.
std::string own_master_address(const Lifeline& lifeline);

// Called by rank 0, whose control plane listens on `port` on every address of this host: tells the driver, and sets
// environment.master_port.
void announce_master(Lifeline& lifeline, protocol::RankEnvironment& environment, int port);

// Called by another rank: waits for rank 0's announcement, and sets environment's master address and port to the first
// address that answers. Throws ControlPlaneError, which names both ranks, their hosts and the attempts.
void find_master(Lifeline& lifeline, protocol::RankEnvironment& environment);

}  // namespace cp_pool
