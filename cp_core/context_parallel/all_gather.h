// K and V of all ranks are gathered and put in sequence order; each rank attends to them in two steps, one for each of
// its chunks. The gradients of K and V are summed and scattered back in fp32.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

PackedForward all_gather_forward(const Context& context, const PackedInputs& inputs);
PackedGradients all_gather_backward(const Context& context, const PackedInputs& inputs,
                                    const AttentionBackwardOperands& backward);

}  // namespace cp_pool
