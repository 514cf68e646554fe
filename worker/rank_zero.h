// What rank 0 does beside computing: it reads requests, receives messages of ranks, runs the coordinator, and writes
// responses to the driver.
#pragma once

#include <functional>

#include "worker/control_plane.h"
#include "worker/fault_injector.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Serves until end of input or shutdown; returns whether every rank stopped in time. stdin_fd and stdout_fd are not
// owned. Faults of phase `result` fire while a result is written. Ends the process on an error, because the driver
// would never hear of this pool again.
bool serve_rank_zero(MessageServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd,
                     int stdout_fd);

// Writes the whole response, in as many writes as the pipe needs. An error of writing is ignored, because a driver that
// is gone also ends stdin. A result longer than the protocol allows is written without its checks, and its reason says
// so. half_way: called when half of the response has been written.
void write_response(int fd, const protocol::Event& event, const std::function<void()>& half_way = {});

}  // namespace cp_pool
