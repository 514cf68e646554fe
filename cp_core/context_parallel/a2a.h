// Heads are scattered over a group of ranks and its tokens gathered, so that each rank attends over the group's tokens
// for its block of heads; then the way back.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// In how many groups of heads a rank of so many computes what it gets, one while another travels: the same on every
// rank.
std::int64_t a2a_head_groups(const AttentionProblem& problem, int ranks, const AttentionBackend& backend);

// group: the ranks that trade heads for tokens; heads and kv_heads divide by its size. ring: the ranks that hold the
// other tokens of the same heads, as in ring_forward; null = the group has all tokens.
PackedForward a2a_forward(const Context& context, Communicator& group, Communicator* ring, const PackedInputs& inputs);
PackedGradients a2a_backward(const Context& context, Communicator& group, Communicator* ring,
                             const PackedInputs& inputs, const AttentionBackwardOperands& backward,
                             const SavedForward& saved);

}  // namespace cp_pool
