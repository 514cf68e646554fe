// Compares two results: `diff` of cp-pool shell.
#pragma once

#include <string>

#include "driver/core/events.h"

namespace cp_pool {

// Returns a table, as lines. It has the differences in fields of the case, outcome, reason, backend, checks with error
// and bound, and hashes of outputs, and the times with their ratio. A line below it names what is the same.
std::string result_diff(const CaseFinished& before, const CaseFinished& now);

}  // namespace cp_pool
