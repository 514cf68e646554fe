// K and V of all ranks are gathered and put in sequence order; each rank attends to them in two steps, one for each of
// its chunks. The gradients of K and V are summed and scattered back in fp32.
#pragma once

#include <array>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// What a rank computes in its two steps, one for each of its chunks, with all K and V.
std::array<TilePlan, 2> all_gather_plans(const AttentionProblem& problem, int ranks, int rank);

PackedForward all_gather_forward(const Context& context, const PackedInputs& inputs);
PackedGradients all_gather_backward(const Context& context, const PackedInputs& inputs,
                                    const AttentionBackwardOperands& backward);

}  // namespace cp_pool
