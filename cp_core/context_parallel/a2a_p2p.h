// Two levels. Ranks 2k and 2k+1 are a pair and run an a2a: they trade heads for tokens, and then hold part k of the
// dual-chunk partition over the pairs. Ranks of equal parity hold the same heads and run a ring.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// Both throw std::invalid_argument if the groups have no pairs, which need an even world size of at least 4.
PackedForward a2a_p2p_forward(const Context& context, const PackedInputs& inputs);
PackedGradients a2a_p2p_backward(const Context& context, const PackedInputs& inputs,
                                 const AttentionBackwardOperands& backward, const SavedForward& saved);

}  // namespace cp_pool
