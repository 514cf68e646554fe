// The tiles that a rank computes in all_gather.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// Against K and V of the other ranks, in sequence order: one plan for each of the rank's two chunks of queries.
using OthersPlans = std::array<TilePlan, 2>;
OthersPlans others_plans(const AttentionProblem& problem, int ranks, int rank);

// First the plan for the rank's own K and V, in their packed order; then the two of OthersPlans.
using AllGatherPlans = std::array<TilePlan, 3>;
AllGatherPlans all_gather_plans(const AttentionProblem& problem, int ranks, int rank);

// The backward of the two steps as calls that satisfy AttentionBackend::contributes_once(): each call computes one
// contribution to a row of dk and dv, which can be sent as it is.
using OthersCalls = std::array<std::vector<TilePlan>, 2>;

// Returns nullopt if some call does not contribute once, or if gradients for each call, in the dtype of q, have more
// bytes than fp32 sums, which happens when calls share many rows of K. whole: the operands with K and V of all ranks;
// only sizes and dtypes are read. A rank can compute the result of every other rank from that rank's plans.
std::optional<OthersCalls> others_calls(const Context& context, const OthersPlans& plans,
                                        const AttentionOperands& whole);

}  // namespace cp_pool
