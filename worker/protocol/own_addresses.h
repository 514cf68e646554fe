// The addresses under which other hosts may reach this host.
#pragma once

#include <string>
#include <vector>

namespace cp_pool::protocol {

// Returns the numeric addresses of interface `interface`, or of all interfaces if it is empty, if they are up. IPv4
// addresses come before IPv6 addresses, those of the loopback interface last. Link-local IPv6 addresses are left out,
// because their meaning differs from host to host.
std::vector<std::string> own_addresses(const std::string& interface = "");

// Returns the result of gethostname; empty if it fails.
std::string host_name();

}  // namespace cp_pool::protocol
