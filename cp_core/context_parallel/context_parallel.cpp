#include "cp_core/context_parallel/context_parallel.h"

#include <cmath>

#include <ATen/ops/zeros.h>

#include "cp_core/context_parallel/core.h"
#include "cp_core/context_parallel/p2p.h"
#include "cp_core/layout.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/merge_partial.h"

namespace cp_pool {
namespace {

PackedInputs pack_inputs(const AttentionProblem& problem, const AttentionInputs& inputs) {
  PackedInputs packed;
  packed.operands = {.q = to_packed(inputs.q, problem.layout),
                     .k = to_packed(inputs.k, problem.layout),
                     .v = to_packed(inputs.v, problem.layout),
                     .bias = inputs.bias,
                     .bias_rows = problem.layout == Layout::thd ? BiasRows::position : BiasRows::local,
                     .scale = problem.scale};
  if (problem.softmax == SoftmaxType::learnable) packed.sink = inputs.sink;
  if (problem.softmax == SoftmaxType::off_by_one) {
    packed.sink = at::zeros({problem.heads}, inputs.q.options().dtype(at::kFloat));
  }
  return packed;
}

PackedForward forward_of_type(const Context& context, const PackedInputs& inputs) {
  return p2p_forward(context, inputs);
}

PackedGradients backward_of_type(const Context& context, const PackedInputs& inputs,
                                 const AttentionBackwardOperands& backward) {
  return p2p_backward(context, inputs, backward);
}

}  // namespace

AttentionProblem make_problem(const Case& c, const SequenceLengths& lengths) {
  const std::int64_t scale_dim = CP_MUTATE(mla_scale, c.head_dim_qk, c.head_dim_v);
  return {.comm = c.comm,
          .backend = c.backend,
          .layout = c.layout,
          .lengths = lengths,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim_qk = c.head_dim_qk,
          .head_dim_v = c.head_dim_v,
          .mask = make_mask(c),
          .scale = 1.0 / std::sqrt(static_cast<double>(scale_dim)),
          .softmax = c.softmax,
          .bias = c.bias,
          .max_logit = c.max_logit,
          .deterministic = c.deterministic};
}

AttentionForward context_parallel_forward(const AttentionProblem& problem, const CpGroups& groups,
                                          const AttentionInputs& inputs) {
  const auto backend = make_backend(problem.backend, inputs.q.device());
  const Context context{.problem = problem, .groups = groups, .backend = *backend};
  const PackedForward forward = forward_of_type(context, pack_inputs(problem, inputs));
  const auto batch = static_cast<std::int64_t>(problem.lengths.padded_q.size());
  return {.out = from_packed(forward.out, problem.layout, batch), .lse = forward.lse, .max_logit = forward.max_logit};
}

AttentionGradients context_parallel_backward(const AttentionProblem& problem, const CpGroups& groups,
                                             const AttentionInputs& inputs, const AttentionForward& forward,
                                             const at::Tensor& dout) {
  const auto backend = make_backend(problem.backend, inputs.q.device());
  const Context context{.problem = problem, .groups = groups, .backend = *backend};
  const PackedInputs packed = pack_inputs(problem, inputs);
  AttentionBackwardOperands backward{.dout = to_packed(dout, problem.layout), .lse = forward.lse, .delta = {}};
  backward.delta = row_delta(to_packed(forward.out, problem.layout), backward.dout);
  const PackedGradients gradients = backward_of_type(context, packed, backward);
  const auto batch = static_cast<std::int64_t>(problem.lengths.padded_q.size());
  AttentionGradients result{.dq = from_packed(gradients.dq, problem.layout, batch),
                            .dk = from_packed(gradients.dk, problem.layout, batch),
                            .dv = from_packed(gradients.dv, problem.layout, batch),
                            .dbias = {},
                            .dsink = {}};
  return result;
}

}  // namespace cp_pool
