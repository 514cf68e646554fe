// The addresses of this host, as other hosts may reach it.
#pragma once

#include <string>
#include <vector>

namespace cp_pool::protocol {

// Numeric addresses of the interfaces that are up: IPv4 before IPv6, those of the loopback interface last. Link-local
// addresses of IPv6 are left out, since they mean something else on each host. interface: of this one alone; empty: of
// all.
std::vector<std::string> own_addresses(const std::string& interface = "");

// gethostname; empty if it fails.
std::string host_name();

}  // namespace cp_pool::protocol
