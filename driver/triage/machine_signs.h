// Finds signs that the machine failed, and not what ran on it.
#pragma once

#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

// Returns the sign as a sentence that quotes the failure; empty if there is none. Signs are the driver's own words (the
// kernel killed a process for lack of memory, the clock was set, the machine slept) and messages of CUDA, NCCL and the
// kernel about failing devices. A worker that asks for more memory than there is gives no such sign.
std::string machine_sign(const CaseFinished& event);

}  // namespace cp_pool
