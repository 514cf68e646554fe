// Agreement of ranks on a small number, such as the worst of their verdicts.
#pragma once

#include <c10/core/Device.h>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Collective. Returns the largest value of all ranks. device: that of the communicator. Throws CommError.
int largest_anywhere(int here, Communicator& group, const at::Device& device, const char* what);

// Collective. Whether `here` is true on any rank.
bool anywhere(bool here, Communicator& group, const at::Device& device, const char* what);

}  // namespace cp_pool
