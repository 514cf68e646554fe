// The groups of a rank that is alone, with which a worker rehearses a case and times a case on one rank.
#pragma once

#include <c10/core/Device.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// device: that of the rank's tensors. An operation is enqueued on the current stream, and has no deadline.
CpGroups single_rank_groups(const at::Device& device = at::kCPU);

}  // namespace cp_pool
