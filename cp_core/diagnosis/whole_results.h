// Gathers the results of all ranks, each rank's rows as the rank returned them.
#pragma once

#include <vector>

#include "cp_core/comm/communicator.h"
#include "cp_core/trial/judged_case.h"
#include "cp_core/verify/ownership.h"
#include "cp_core/verify/rank_view.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::diagnosis {

// By rank; fp64 on the CPU, [rows, heads, dim]. The rows of out, lse and dq are the rank's q rows in packed order,
// those of dk and dv its kv rows, padding included (verify::RankRows). dbias is as verify::bias_by_row arranges the
// rank's. A result that some rank did not return, or returned in a wrong shape, is undefined for all ranks.
using ResultsByRank = std::vector<verify::Results>;

// Collective over cp; the same on every rank.
ResultsByRank gather_results(const Case& c, const verify::Ownership& owners, const verify::Results& results,
                             Communicator& cp);

}  // namespace cp_pool::diagnosis
