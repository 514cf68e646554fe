// Whether a failure shows that the machine failed, and not what it ran.
#pragma once

#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

// What the machine did, as a sentence that quotes the failure; empty: nothing in it says so. Looked for are the
// driver's own words (a process that the kernel killed for want of memory, a clock that was set, a machine that slept)
// and what CUDA, NCCL and the kernel say of devices that fail. A worker that asks for more memory than there is gives
// no such sign.
std::string machine_sign(const CaseFinished& event);

}  // namespace cp_pool
