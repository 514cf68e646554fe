// What a rank computes in all_gather.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// With the K and V of others, in sequence order: a step for each of the rank's chunks of queries.
using OthersPlans = std::array<TilePlan, 2>;
OthersPlans others_plans(const AttentionProblem& problem, int ranks, int rank);

// With the rank's own K and V, as they lie; and the two steps with those of others.
using AllGatherPlans = std::array<TilePlan, 3>;
AllGatherPlans all_gather_plans(const AttentionProblem& problem, int ranks, int rank);

// The backward of the two steps by calls of which each contributes_once().
using OthersCalls = std::array<std::vector<TilePlan>, 2>;

// Nothing if some call does not contribute once, or if the rows of K that calls have in common make their gradients, in
// the dtype of q, more than fp32 sums are. whole: the operands with K and V of all ranks; only sizes and dtypes are
// read. Every rank can tell it of each other's plans.
std::optional<OthersCalls> others_calls(const Context& context, const OthersPlans& plans,
                                        const AttentionOperands& whole);

}  // namespace cp_pool
