// All-to-all context parallelism: a group of ranks scatters its heads and gathers its tokens. Each rank computes
// attention over all tokens of the group for its block of heads; a second all-to-all undoes the first.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// Returns in how many groups a rank computes its block of heads: one group is computed while the next one travels. The
// number is the same on every rank. ranks: how many share the heads.
std::int64_t a2a_head_groups(const AttentionProblem& problem, int ranks, const AttentionBackend& backend);

// group: the ranks that trade heads for tokens; heads and kv_heads must be divisible by its size. ring: the ranks that
// hold the other tokens of the same heads (p2p.h); null = the group has all tokens.
PackedForward a2a_forward(const Context& context, Communicator& group, Communicator* ring, const PackedInputs& inputs);
PackedGradients a2a_backward(const Context& context, Communicator& group, Communicator* ring,
                             const PackedInputs& inputs, const AttentionBackwardOperands& backward,
                             const SavedForward& saved);

}  // namespace cp_pool
