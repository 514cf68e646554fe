// TCP: connects within a time limit, sends on such a connection, and listens at one address of this host.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cases/unique_fd.h"
#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

// Returns a connected, blocking file descriptor that is closed on exec. Returns none and sets `why` if no address of
// the endpoint answers within the limit.
UniqueFd connect_within(const lifeline::Endpoint& endpoint, std::chrono::milliseconds limit, std::string& why);

struct Connected {
  UniqueFd fd;
  lifeline::Endpoint endpoint;
};
// Connects to the endpoints in turn, again and again within the limit. Returns the first connection that `accepts`
// takes; no fd if there is none, and then `why` holds the reason for each endpoint.
Connected connect_to_any(const std::vector<lifeline::Endpoint>& endpoints, std::chrono::milliseconds limit,
                         const std::function<bool(int fd, std::string& why)>& accepts, std::string& why);

// Waits until a file descriptor has one of these events of poll(2), at most until the deadline. Returns 1 if it has, 0
// at the deadline, and -1, with the cause in errno, on an error.
int poll_until(int fd, short events, std::chrono::steady_clock::time_point deadline);

// Sends every byte, however long that takes. Returns false, with the cause in errno, if the connection fails.
bool send_all(int fd, std::span<const std::byte> bytes);

// Returns the numeric address of this end of a connection; empty if `fd` is not a connected socket.
std::string own_end(int fd);
std::string other_end(int fd);  // of the other end

// Returns the address of this host from which it reaches `address`, a numeric one; empty if it cannot reach it.
std::string address_towards(const std::string& address);

// Returns a listening, non-blocking file descriptor that is closed on exec, at the address of `host`, a name or a
// numeric address. port 0: one that the kernel chooses. Listens at every address if `host` is none of this host, such
// as the virtual address of a service; and unless `all_here`, which says that nobody connects from another host, if it
// is a name that stands for a loopback address only here, as /etc/hosts may have it for the host's own name. Throws
// std::system_error, which names the address.
int listen_at(const std::string& host, std::uint16_t port, bool all_here);

// The same at the address of a listening socket, at a port that the kernel chooses.
int listen_beside(int listening);

void set_option(int fd, int level, int name, int value);  // setsockopt

// Returns the port that a socket is bound to.
std::uint16_t port_of(int fd);

}  // namespace cp_pool
