// K and V of all ranks are gathered and put in sequence order. While they travel a rank attends to its own; then to the
// others' in two steps, one for each of its chunks of queries. The gradients of others' K and V go to their owners as
// the kernels gave them, or summed in fp32, while the rank may still compute those of its own.
#pragma once

#include "cp_core/context_parallel/all_gather_plans.h"
#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// For all calls of a pass. own: the rank's operands; whole: with K and V of all ranks. Only sizes, strides and dtypes
// are read.
void get_ready_for_all_gather(AttentionBackend& backend, const AllGatherPlans& plans, const AttentionOperands& own,
                              const AttentionOperands& whole, Pass pass);

PackedForward all_gather_forward(const Context& context, const PackedInputs& inputs);
PackedGradients all_gather_backward(const Context& context, const PackedInputs& inputs,
                                    const AttentionBackwardOperands& backward);

}  // namespace cp_pool
