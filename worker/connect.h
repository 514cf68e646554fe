// Connections over TCP within a time.
#pragma once

#include <chrono>
#include <string>

#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

// A descriptor that is closed on exec, and that blocks; -1 and the reason in `why` if nobody answers in time.
int connect_within(const lifeline::Endpoint& endpoint, std::chrono::milliseconds limit, std::string& why);

// The numeric address of a connection's own end; empty if it is none.
std::string own_end(int fd);

// The address of this host from which it reaches `address`, a numeric one; empty if it does not.
std::string address_towards(const std::string& address);

}  // namespace cp_pool
