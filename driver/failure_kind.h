// When two cases fail in the same way.
#pragma once

#include <string>

#include "driver/events.h"

namespace cp_pool {

// A text for people that is equal for failures of the same kind: the outcome, and
//   fail     the first tensor, in the order of the worker's checks, that is wrong on any rank
//   error    the first line of the reason
//   crash    how the first rank died, and in which phase
//   timeout  the phase in which it hung; or what the worker says of the wait that ran out
// Numbers and addresses in texts of the worker do not count, so neither do ranks. Empty if the case did not fail.
std::string failure_kind(const CaseFinished& event);

}  // namespace cp_pool
