// Context parallelism on two levels. The ranks of an inner group run an a2a: they exchange heads for tokens, and then
// hold one part of the dual-chunk partition over the inner groups. The ranks of an outer group hold the same heads and
// run a ring.
#include "cp_core/context_parallel/a2a.h"
#include "cp_core/context_parallel/comm_steps.h"
#include "cp_core/context_parallel/p2p.h"

namespace cp_pool {

CommSteps a2a_p2p_steps() {
  return {
      .forward =
          [](const Context& context, const PackedInputs& inputs) {
            return a2a_forward(context, *context.groups.inner, context.groups.outer.get(), inputs);
          },
      .backward =
          [](const Context& context, const PackedInputs& inputs, const AttentionBackwardOperands& backward,
             const SavedForward& saved) {
            return a2a_backward(context, *context.groups.inner, context.groups.outer.get(), inputs, backward, saved);
          },
      .get_ready =
          [](const FutureRank& rank, Pass pass, FastBackend& backend) {
            const int in_group = rank.problem.inner;
            const int groups = rank.ranks / in_group;
            const AttentionOperands like = rank.operands_like({.q = groups, .kv = groups, .heads = in_group});
            if (like.q.size(1) == 0) return;  // computes nothing
            backend.get_ready(ring_plans(rank.problem, groups, rank.rank / in_group), like, pass);
          },
  };
}

}  // namespace cp_pool
