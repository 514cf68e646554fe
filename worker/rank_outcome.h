// Makes the outcome that a rank reports from cp_core's report of the case.
#pragma once

#include "cp_core/trial/run_case.h"
#include "worker/rank_messages.h"

namespace cp_pool {

// Copies verdict, checks, times and hash of `report` to `outcome`, whose rank is set.
void take_report(const RankReport& report, RankOutcome& outcome);

}  // namespace cp_pool
