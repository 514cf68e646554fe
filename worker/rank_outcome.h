// What this rank reports of a case, from what cp_core says of it.
#pragma once

#include "cp_core/trial/run_case.h"
#include "worker/rank_messages.h"

namespace cp_pool {

// Verdict, checks, times and hash of `report` into `outcome`, whose rank is set.
void take_report(const RankReport& report, RankOutcome& outcome);

}  // namespace cp_pool
