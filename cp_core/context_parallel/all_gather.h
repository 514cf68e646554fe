// All-gather context parallelism: every rank gathers K and V of all ranks and puts them in sequence order. While they
// travel, a rank computes attention over its own K and V; then over those of the others, in two steps, one for each
// of its chunks of queries. In the backward the gradients of K and V of other ranks are sent to their owners, as the
// kernels gave them or summed in fp32, and the rank may compute those of its own K and V meanwhile.
#pragma once

#include "cp_core/context_parallel/all_gather_plans.h"
#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// Prepares the backend for all calls of one pass. own: the rank's operands; whole: the same with K and V of all ranks.
// Only sizes, strides and dtypes are read.
void get_ready_for_all_gather(AttentionBackend& backend, const AllGatherPlans& plans, const AttentionOperands& own,
                              const AttentionOperands& whole, Pass pass);

PackedForward all_gather_forward(const Context& context, const PackedInputs& inputs);
PackedGradients all_gather_backward(const Context& context, const PackedInputs& inputs,
                                    const AttentionBackwardOperands& backward);

}  // namespace cp_pool
