// Ring attention: K and V travel once around the ring while each rank computes with those it holds; partial outputs are
// merged by their log-sum-exp. No rank ever holds the whole sequence. In the backward the gradients of K and V follow
// them, and are home after a turn.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// group: its ranks make the ring and hold the dual-chunk partition of the sequences; null = one rank holds them whole.
AttentionSums ring_forward(const Context& context, Communicator* group, const AttentionOperands& operands);
AttentionGradientSums ring_backward(const Context& context, Communicator* group, const AttentionOperands& operands,
                                    const AttentionBackwardOperands& backward);

PackedForward p2p_forward(const Context& context, const PackedInputs& inputs);
PackedGradients p2p_backward(const Context& context, const PackedInputs& inputs,
                             const AttentionBackwardOperands& backward);

}  // namespace cp_pool
