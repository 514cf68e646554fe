// Every check of one case as a table: `cp-pool submit`.
#pragma once

#include <string>
#include <vector>

#include "worker/protocol/messages.h"

namespace cp_pool {

// Returns a row for each tensor and rank, in the order of the checks: verdict, error and bound of the worst row and
// their ratio, baseline, max_abs, rms, the place of the worst row, and the message of a failed check. Each line ends
// with a newline.
std::string checks_table(const std::vector<Check>& checks);

}  // namespace cp_pool
