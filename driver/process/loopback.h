// Whether ranks of one machine can meet.
#pragma once

#include <string>

namespace cp_pool {

// Why a TCP connection over 127.0.0.1 does not come about, a second being waited for it; empty: it does, or this
// process lacks the descriptors to try.
std::string loopback_trouble();

}  // namespace cp_pool
