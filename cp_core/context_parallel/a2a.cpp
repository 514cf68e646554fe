#include "cp_core/context_parallel/a2a.h"

#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "cp_core/context_parallel/a2a_bias.h"
#include "cp_core/context_parallel/head_exchange.h"
#include "cp_core/context_parallel/p2p.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

// One pass over one group: where its tokens lie, and the exchanges that pass needs.
class Exchanges {
 public:
  Exchanges(const Context& context, Communicator& group, Communicator* ring)
      : problem_(context.problem),
        ranks_(context.groups.cp->size()),
        first_(context.groups.cp->rank() - group.rank()),
        group_(group),
        ring_size_(ring ? ring->size() : 1),
        ring_rank_(ring ? ring->rank() : 0),
        q_(group, copies(problem_.lengths.padded_q)),
        kv_(group, copies(problem_.lengths.padded_kv)) {}

  [[nodiscard]] const HeadExchange& q() const { return q_; }
  [[nodiscard]] const HeadExchange& kv() const { return kv_; }
  [[nodiscard]] BiasExchange bias(const at::Tensor& shard) const {
    const std::vector<std::int64_t> padded(static_cast<std::size_t>(shard.size(0)), problem_.lengths.padded_q[0]);
    return {problem_, group_, {.by_rank = runs_by_rank(padded), .packed = packed_runs(padded)}};
  }

  // The group's tokens in packed order: the dual-chunk partition over the ring.
  [[nodiscard]] std::vector<Run> packed_runs(const std::vector<std::int64_t>& padded) const {
    return local_runs(padded, ring_size_, ring_rank_);
  }

  // What this rank keeps of a statistic of all heads.
  [[nodiscard]] at::Tensor own_heads(const at::Tensor& of_heads) const {
    const std::int64_t block = of_heads.size(0) / group_.size();
    return of_heads.narrow(0, CP_MUTATE(a2a_sink_heads, group_.rank(), 0) * block, block).contiguous();
  }

 private:
  [[nodiscard]] std::vector<Run> runs_by_rank(const std::vector<std::int64_t>& padded) const {
    return gathered_runs(padded, ranks_, first_, group_.size());
  }
  [[nodiscard]] std::vector<RowCopy> copies(const std::vector<std::int64_t>& padded) const {
    const std::vector<Run> packed = packed_runs(padded);
    return row_copies(CP_MUTATE(a2a_rows_not_reordered, runs_by_rank(padded), packed), packed);
  }

  const AttentionProblem& problem_;
  int ranks_;
  int first_;
  Communicator& group_;
  int ring_size_;
  int ring_rank_;
  HeadExchange q_;
  HeadExchange kv_;
};

AttentionOperands scatter_operands(const Exchanges& exchanges, const AttentionOperands& operands) {
  auto q = exchanges.q().start_scatter(operands.q, "a2a q");
  auto k = exchanges.kv().start_scatter(operands.k, "a2a k");
  auto v = exchanges.kv().start_scatter(operands.v, "a2a v");
  AttentionOperands scattered = operands;
  scattered.q = exchanges.q().finish_scatter(std::move(q));
  scattered.k = exchanges.kv().finish_scatter(std::move(k));
  scattered.v = exchanges.kv().finish_scatter(std::move(v));
  if (operands.bias.defined()) scattered.bias = exchanges.bias(operands.bias).scatter(operands.bias);
  return scattered;
}

AttentionBackwardOperands scatter_backward(const Exchanges& exchanges, const AttentionBackwardOperands& backward,
                                           bool needs_out) {
  const at::Tensor statistics = at::stack({backward.lse, backward.delta}, -1).transpose(0, 1);
  auto dout = exchanges.q().start_scatter(backward.dout, "a2a dout");
  auto rows = exchanges.q().start_scatter(statistics, "a2a lse and delta");
  const at::Tensor own_dout = exchanges.q().finish_scatter(std::move(dout));
  const at::Tensor own_rows = exchanges.q().finish_scatter(std::move(rows)).permute({2, 1, 0}).contiguous();
  AttentionBackwardOperands own{.dout = own_dout, .lse = own_rows.select(0, 0), .delta = own_rows.select(0, 1)};
  if (needs_out) own.out = delta_carrier(own.dout, own.delta);
  return own;
}

}  // namespace

PackedForward a2a_forward(const Context& context, Communicator& group, Communicator* ring, const PackedInputs& inputs) {
  const Exchanges exchanges(context, group, ring);
  const AttentionOperands operands = scatter_operands(exchanges, inputs.operands);
  const at::Tensor sink = inputs.sink.defined() ? exchanges.own_heads(inputs.sink) : at::Tensor();
  const PackedForward own = finish_forward(context.problem, exchanges.packed_runs(context.problem.lengths.padded_q),
                                           sink, operands.q.scalar_type(), ring_forward(context, ring, operands));
  auto out = exchanges.q().start_gather(own.out, "a2a out");
  auto lse = exchanges.q().start_gather(own.lse.transpose(0, 1).unsqueeze(-1).contiguous(), "a2a lse");
  PackedForward result;
  result.out = HeadExchange::finish_gather(std::move(out));
  result.lse = HeadExchange::finish_gather(std::move(lse)).squeeze(-1).transpose(0, 1).contiguous();
  if (own.max_logit.defined()) {
    result.max_logit = at::empty({context.problem.heads}, own.max_logit.options());
    group.all_gather(result.max_logit, own.max_logit, "a2a max_logit")->wait();
  }
  return result;
}

PackedGradients a2a_backward(const Context& context, Communicator& group, Communicator* ring,
                             const PackedInputs& inputs, const AttentionBackwardOperands& backward) {
  const Exchanges exchanges(context, group, ring);
  const AttentionOperands operands = scatter_operands(exchanges, inputs.operands);
  const AttentionBackwardOperands own_backward = scatter_backward(exchanges, backward, context.backend.needs_out());
  const PackedGradients own = finish_backward(operands, ring_backward(context, ring, operands, own_backward));
  auto dq = exchanges.q().start_gather(own.dq, "a2a dq");
  auto dk = exchanges.kv().start_gather(own.dk, "a2a dk");
  auto dv = exchanges.kv().start_gather(own.dv, "a2a dv");
  PackedGradients result;
  result.dq = HeadExchange::finish_gather(std::move(dq));
  result.dk = HeadExchange::finish_gather(std::move(dk));
  result.dv = HeadExchange::finish_gather(std::move(dv));
  if (own.dbias.defined()) result.dbias = exchanges.bias(inputs.operands.bias).gather(own.dbias);
  return result;
}

}  // namespace cp_pool
