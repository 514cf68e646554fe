// Every check of one case as a table: `cp-pool submit`.
#pragma once

#include <string>
#include <vector>

#include "worker/protocol/messages.h"

namespace cp_pool {

// A row for each tensor and rank, in the order of the checks: verdict, error and bound of the worst row and their
// ratio, baseline, max_abs, rms, where the worst row is, and the message of a check that failed. Lines, each ended by a
// newline.
std::string checks_table(const std::vector<Check>& checks);

}  // namespace cp_pool
