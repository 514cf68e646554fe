// What this rank reports of a case, from what cp_core says of it.
#pragma once

#include "cp_core/verify/run_case.h"
#include "worker/rank_messages.h"

namespace cp_pool {

// Verdict, checks, times and hash of `report` into `outcome`, whose rank is set.
void take_report(const RankReport& report, RankOutcome& outcome);

// A rank's share of the cores: those this process may use, divided by the ranks on this host, at least one.
int share_of_cores(int ranks_on_host);

// Gives LibTorch's operations on the calling thread that many threads.
void use_share_of_cores(int ranks_on_host);

}  // namespace cp_pool
