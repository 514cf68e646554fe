// Listens for TCP connections at one address of this host.
#pragma once

#include <cstdint>
#include <string>

namespace cp_pool {

// Returns a listening, non-blocking file descriptor that is closed on exec, at the address of `host`, a name or a
// numeric address. port 0: one that the kernel chooses. Listens at every address if `host` is none of this host, such
// as the virtual address of a service; and unless `all_here`, which says that nobody connects from another host, if it
// is a name that stands for a loopback address only here, as /etc/hosts may have it for the host's own name. Throws
// std::system_error, which names the address.
int listen_at(const std::string& host, std::uint16_t port, bool all_here);

// The same at the address of a listening socket, at a port that the kernel chooses.
int listen_beside(int listening);

// Returns the port that a socket is bound to.
std::uint16_t port_of(int fd);

}  // namespace cp_pool
