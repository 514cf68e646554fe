#include "cp_core/builtin/rank_step.h"

namespace cp_pool {

AttentionInputs attention_inputs(const verify::Shards& shards) {
  return {.q = shards.q, .k = shards.k, .v = shards.v, .bias = shards.bias, .sink = shards.sink};
}

verify::Results results_of(const AttentionForward& forward, const AttentionGradients& gradients) {
  return {.out = forward.out,
          .lse = forward.lse,
          .dq = gradients.dq,
          .dk = gradients.dk,
          .dv = gradients.dv,
          .max_logit = forward.max_logit,
          .dbias = gradients.dbias,
          .dsink = gradients.dsink};
}

verify::Results take_step(const AttentionProblem& problem, const CpGroups& groups, const verify::Shards& shards) {
  const AttentionInputs inputs = attention_inputs(shards);
  const AttentionForward forward = context_parallel_forward(problem, groups, inputs);
  AttentionGradients gradients;
  if (shards.dout.defined()) gradients = context_parallel_backward(problem, groups, inputs, forward, shards.dout);
  return results_of(forward, gradients);
}

}  // namespace cp_pool
