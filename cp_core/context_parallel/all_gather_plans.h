// The tiles that a rank computes in all_gather.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// The plans for K and V of the other ranks, in sequence order: one for each of the rank's two chunks of queries.
using OthersPlans = std::array<TilePlan, 2>;
OthersPlans others_plans(const AttentionProblem& problem, int ranks, int rank);

// The plan for the rank's own K and V, in packed order, followed by the two of OthersPlans.
using AllGatherPlans = std::array<TilePlan, 3>;
AllGatherPlans all_gather_plans(const AttentionProblem& problem, int ranks, int rank);

// The backward of the two steps as calls that satisfy FastBackend::contributes_once(): each call contributes at most
// once to a row of dk and dv, so its contributions can be sent as the kernel rounded them.
using OthersCalls = std::array<std::vector<TilePlan>, 2>;

// Returns nullopt if some call does not contribute once, or if the gradients of all calls, in the dtype of q, have more
// bytes than fp32 sums, which happens when calls share many rows of K. whole: the operands with K and V of all ranks;
// only sizes and dtypes are read. A rank can compute this for every other rank from that rank's plans.
std::optional<OthersCalls> others_calls(const Context& context, const OthersPlans& plans,
                                        const AttentionOperands& whole);

}  // namespace cp_pool
