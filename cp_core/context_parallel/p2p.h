// Ring attention: K and V travel once around the ring while each rank computes with those it holds; partial outputs are
// merged by their log-sum-exp. No rank ever holds the whole sequence. The backward takes the steps in reverse order: it
// begins with the K and V that the forward held last, and ends with the rank's own. The gradients of K and V travel
// along, and reach their owner while it computes its own part.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// group: the ranks of the ring, which hold the dual-chunk partition of the sequences; null = one rank has all of them.
// last: K and V of the last step, for the backward; undefined in a ring of one.
struct RingForward {
  AttentionSums sums;
  KeyValues last;
};
RingForward ring_forward(const Context& context, Communicator* group, const AttentionOperands& operands);
AttentionGradientSums ring_backward(const Context& context, Communicator* group, const AttentionOperands& operands,
                                    const AttentionBackwardOperands& backward, const KeyValues& last);

}  // namespace cp_pool
