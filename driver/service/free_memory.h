// Whether this machine is about to run out of memory.
#pragma once

namespace cp_pool::service {

// Less than 5 % of the memory is available: of the machine, or of the control group that this process is in.
bool memory_is_short();

}  // namespace cp_pool::service
