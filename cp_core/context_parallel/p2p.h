// Ring attention. K and V are passed once around the ring, and at each ring step a rank attends to the K and V that it
// holds. Partial outputs are merged by their log-sum-exp. No rank ever holds the whole sequence. The backward takes the
// steps in reverse order: it begins with the K and V that the forward held last, and ends with the rank's own. The
// gradients of K and V follow K and V around the ring, and reach their owner while it computes its own contribution.
#pragma once

#include <vector>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// The tiles of each step of a rank, for the K and V that it then holds.
std::vector<TilePlan> ring_plans(const AttentionProblem& problem, int ranks, int rank);

// group: the ranks of the ring, which hold the dual-chunk partition of the sequences; null if one rank has all tokens.
// last: K and V of the last step, for the backward; undefined in a ring of one.
struct RingForward {
  AttentionSums sums;
  KeyValues last;
};
RingForward ring_forward(const Context& context, Communicator* group, const AttentionOperands& operands);
// The gradients may be fp32 sums, which finish_backward rounds.
PackedGradients ring_backward(const Context& context, Communicator* group, const AttentionOperands& operands,
                              const AttentionBackwardOperands& backward, const KeyValues& last);

}  // namespace cp_pool
