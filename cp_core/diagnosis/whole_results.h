// The results of all ranks put together: rank 0 has each rank's rows side by side, as the rank gave them.
#pragma once

#include <vector>

#include "cp_core/comm/communicator.h"
#include "cp_core/trial/judged_case.h"
#include "cp_core/verify/ownership.h"
#include "cp_core/verify/rank_view.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::diagnosis {

// By rank. Tensors in the shape of verify::Results, but for rows: those of out, lse and dq are the rank's rows of q in
// packed order, those of dk and dv its rows of kv, padding included (verify::RankRows). fp64 on the CPU. dbias as
// verify::bias_by_row gives the rank's. A result that a rank did not give, or gave misshapen, is undefined on all.
using ResultsByRank = std::vector<verify::Results>;

// Collective over cp. Returns the same on every rank.
ResultsByRank gather_results(const Case& c, const verify::Ownership& owners, const verify::Results& results,
                             Communicator& cp);

}  // namespace cp_pool::diagnosis
