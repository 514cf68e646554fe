// Two levels: ranks (2k, 2k+1) trade heads for tokens, then hold chunk k of the dual-chunk partition over the pairs;
// the ranks of equal parity, which hold the same heads, make a ring.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// Throw std::invalid_argument if the groups have no pairs: world size 4 and up, even.
PackedForward a2a_p2p_forward(const Context& context, const PackedInputs& inputs);
PackedGradients a2a_p2p_backward(const Context& context, const PackedInputs& inputs,
                                 const AttentionBackwardOperands& backward, const SavedForward& saved);

}  // namespace cp_pool
