// What differs between two results: `diff` of cp-pool shell.
#pragma once

#include <string>

#include "driver/events.h"

namespace cp_pool {

// A table of what differs: fields of the case, outcome, reason, backend, checks with error and bound, hashes of
// outputs; and the times, with their ratio. Below it, what is the same. Lines.
std::string result_diff(const CaseFinished& before, const CaseFinished& now);

}  // namespace cp_pool
