// How ranks that a launcher started find rank 0's control plane. Rank 0 binds a free port and tells the driver over its
// lifeline; the driver tells the other ranks.
#pragma once

#include <string>

#include "worker/lifeline.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

// Returns the address at which rank 0 serves the control plane: loopback if all ranks are on its host; else that of the
// interface that the user has chosen, or the one from which this host reaches the driver.
std::string own_master_address(const Lifeline& lifeline, bool on_one_host);

// Called by rank 0, whose control plane listens at environment.master_addr on `port`: tells the driver, and sets
// environment.master_port.
void announce_master(Lifeline& lifeline, protocol::RankEnvironment& environment, int port);

// Called by another rank: waits for rank 0's announcement, and sets environment's master address and port to the first
// address that answers. Throws ControlPlaneError, which names both ranks, their hosts and the attempts.
void find_master(Lifeline& lifeline, protocol::RankEnvironment& environment);

}  // namespace cp_pool
