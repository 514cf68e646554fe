// Finds out whether this machine is about to run out of memory.
#pragma once

namespace cp_pool::service {

// Returns whether less than 5 % of the memory is available: that of the machine, or of the control group of this
// process.
bool memory_is_short();

}  // namespace cp_pool::service
