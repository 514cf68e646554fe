// All-to-all context parallelism. A first all-to-all scatters the heads over a group of ranks and gathers the group's
// tokens, so that each rank computes attention over all tokens of the group for its block of heads. A second all-to-all
// undoes the first.
#pragma once

#include <vector>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// The tensors that a forward keeps for the backward, for each group of heads in order.
struct SavedHeads final : SavedForward {
  // The operands of one group of heads, and the result of the attention over it.
  struct Heads {
    AttentionOperands operands;
    at::Tensor out;  // [q tokens of the group, heads of the group, head_dim_v], dtype of q
    at::Tensor lse;  // fp32 [heads of the group, q tokens of the group]
    KeyValues last;  // RingForward::last
  };
  std::vector<Heads> head_groups;
};

// group: the ranks that exchange heads for tokens. ring: the ranks that hold
// the other tokens of the same heads (p2p.h); null if the group has all tokens.
PackedForward a2a_forward(const Context& context, Communicator& group, Communicator* ring, const PackedInputs& inputs);
PackedGradients a2a_backward(const Context& context, Communicator& group, Communicator* ring,
                             const PackedInputs& inputs, const AttentionBackwardOperands& backward,
                             const SavedForward& saved);

}  // namespace cp_pool
