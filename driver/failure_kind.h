// Decides whether two cases failed in the same way.
#pragma once

#include <string>

#include "driver/events.h"

namespace cp_pool {

// Returns a readable text that is equal for failures of the same kind. It consists of the outcome and
//   fail     the first tensor, in the order of the worker's checks, that is wrong on any rank
//   error    the first line of the reason
//   crash    how the first rank died, and in which phase
//   timeout  the phase in which the case hung, or the worker's description of the wait that timed out
// Numbers and addresses in texts of the worker are left out, and so are the numbers of ranks. Empty if the case did not
// fail.
std::string failure_kind(const CaseFinished& event);

}  // namespace cp_pool
