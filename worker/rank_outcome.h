// Turns cp_core's report of a case into the outcome that a rank reports.
#pragma once

#include "cp_core/run_case/run_case.h"
#include "worker/rank_messages.h"

namespace cp_pool {

// Moves the report into `outcome`, whose rank is already set. Of what `outcome` had reported before, the times of
// phases stay.
void take_report(RankReport report, RankOutcome& outcome);

}  // namespace cp_pool
