// Connects over TCP within a time limit, and sends on such a connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

// Returns a connected, blocking file descriptor that is closed on exec. Returns -1 and sets `why` if no address of the
// endpoint answers within the limit.
int connect_within(const lifeline::Endpoint& endpoint, std::chrono::milliseconds limit, std::string& why);

// Sends every byte, however long that takes. Returns false, with the cause in errno, if the connection fails.
bool send_all(int fd, std::span<const std::byte> bytes);

// Returns the numeric address of this end of a connection; empty if `fd` is not a connected socket.
std::string own_end(int fd);
std::string other_end(int fd);  // of the other end

// Returns the address of this host from which it reaches `address`, a numeric one; empty if it cannot reach it.
std::string address_towards(const std::string& address);

}  // namespace cp_pool
