// Checks whether ranks of one machine can connect to each other.
#pragma once

#include <string>

namespace cp_pool {

// Returns why a TCP connection over 127.0.0.1 cannot be made within a second. Empty if it can, or if this process has
// no descriptors left to try.
std::string loopback_trouble();

}  // namespace cp_pool
