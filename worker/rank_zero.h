// What rank 0 does beside computing: it reads requests, receives messages of ranks, and runs the coordinator.
#pragma once

#include "worker/control_plane.h"
#include "worker/fault_injector.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Serves until end of input or shutdown; returns whether every rank stopped in time. stdin_fd and stdout_fd are not
// owned. Faults of phase `result` fire while a result is written. Ends the process on an error, because the driver
// would never hear of this pool again.
bool serve_rank_zero(MessageServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd,
                     int stdout_fd);

}  // namespace cp_pool
