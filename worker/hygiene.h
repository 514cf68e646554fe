// The resources that this process holds, for leak detection across cases.
#pragma once

#include "worker/protocol/messages.h"

namespace cp_pool {

// Reads resident memory, open file descriptors and threads of this process from /proc.
protocol::Hygiene measure_hygiene(int rank);

}  // namespace cp_pool
