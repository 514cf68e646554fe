#include "cp_core/context_parallel/a2a.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "cases/comm_facts.h"
#include "cp_core/context_parallel/bias_exchange.h"
#include "cp_core/context_parallel/comm_steps.h"
#include "cp_core/context_parallel/core.h"
#include "cp_core/context_parallel/head_exchange.h"
#include "cp_core/context_parallel/p2p.h"
#include "cp_core/context_parallel/second_stream.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

using Item = HeadExchange::Item;

#ifdef CP_POOL_MUTANTS
void take_wrong_kv_heads(HeadShare& share, const AttentionProblem& problem, int ranks, int rank) {
  if (mutant_is_on(Mutant::kv_heads_split_apart) && problem.kv_heads < ranks) {
    share.kv.clear();
    if (rank < problem.kv_heads) share.kv.push_back(rank);
  }
  if (!mutant_is_on(Mutant::kv_heads_padded_apart) || problem.kv_heads <= ranks || problem.kv_heads % ranks == 0)
    return;
  const auto padded = [ranks](std::int64_t heads) { return (heads + ranks - 1) / ranks * ranks; };
  const std::int64_t group = padded(problem.heads) / padded(problem.kv_heads);
  share.kv.clear();
  for (std::int64_t head = share.first; head < share.first + share.count; ++head) {
    share.kv.push_back(std::min(head / group, problem.kv_heads));
  }
}
#endif

// How the ranks of a group split the heads (head_share). A kv head that several ranks need is repeated in K and V
// before the exchange, once for each slot, and the gradients of its slots are summed after it.
class HeadSplit {
 public:
  HeadSplit(const AttentionProblem& problem, int ranks) : kv_heads_(problem.kv_heads) {
    for (int rank = 0; rank < ranks; ++rank) {
      HeadShare share = head_share(problem.heads, problem.kv_heads, ranks, rank);
#ifdef CP_POOL_MUTANTS
      take_wrong_kv_heads(share, problem, ranks, rank);
#endif
      slots_.insert(slots_.end(), share.kv.begin(), share.kv.end());
      q.push_back(share.first + share.count);
      kv.push_back(static_cast<std::int64_t>(slots_.size()));
    }
  }

  // GroupRows::heads of tensors with all query heads, and of tensors with all slots.
  std::vector<std::int64_t> q{0};
  std::vector<std::int64_t> kv{0};

  // Whether some kv head has several slots.
  [[nodiscard]] bool repeats() const { return std::cmp_greater(slots_.size(), kv_heads_); }

  // Returns K or V with a head for each slot.
  [[nodiscard]] at::Tensor repeated(const at::Tensor& of_kv_heads) const {
    if (!repeats()) return of_kv_heads;
    std::vector<at::Tensor> heads;
    heads.reserve(slots_.size());
    for (const std::int64_t head : slots_) {
      heads.push_back(of_kv_heads.narrow(1, CP_MUTATE(kv_heads_padded_apart, head, head % kv_heads_), 1));
      if (CP_MUTATE(kv_heads_padded_apart, false, head == kv_heads_)) heads.back() = at::zeros_like(heads.back());
    }
#ifdef CP_POOL_MUTANTS
    const auto slots = static_cast<std::int64_t>(slots_.size());
    if (mutant_is_on(Mutant::kv_repeated_over_tokens) && slots % kv_heads_ == 0) {
      return of_kv_heads.repeat({slots / kv_heads_, 1, 1}).view({of_kv_heads.size(0), slots, of_kv_heads.size(2)});
    }
#endif
    return at::cat(heads, 1);
  }

  // Returns the sums of gradients that have a head for each slot. like: has the dtype and the kv heads.
  [[nodiscard]] at::Tensor summed(const at::Tensor& of_slots, const at::Tensor& like) const {
    if (!repeats()) return of_slots;
    std::vector<at::Tensor> sums;
    auto slot = slots_.begin();
    for (std::int64_t head = 0; head < kv_heads_; ++head) {
      const auto end = std::upper_bound(slot, slots_.end(), head);
      sums.push_back(of_slots.narrow(1, slot - slots_.begin(), end - slot).sum(1, /*keepdim=*/true));
      if (CP_MUTATE(shared_dkv_summed_twice, false, end - slot > 1)) sums.back().mul_(2);
      slot = end;
    }
    return at::cat(sums, 1).to(like.scalar_type());
  }

 private:
  std::int64_t kv_heads_;
  std::vector<std::int64_t> slots_;  // the kv heads of the ranks, rank by rank, ascending
};

// Returns the number of groups in which a rank computes its block of heads. One group is computed while the next one is
// transferred. The number is the same on every rank. ranks: the number of ranks that share the heads.
std::int64_t head_groups_of(const AttentionProblem& problem, int ranks, const FastBackend& backend) {
  if (problem.bias || problem.heads % ranks != 0 || problem.kv_heads % ranks != 0) return 1;
  const std::vector<std::int64_t>& padded = problem.lengths.padded_q;
  const std::int64_t tokens = std::accumulate(padded.begin(), padded.end(), std::int64_t{0});
  return backend.pipeline_groups({.q_rows = tokens,
                                  .heads = problem.heads / ranks,
                                  .kv_heads = problem.kv_heads / ranks,
                                  .replayed = problem.replayed});
}

// Makes the exchanges of one pass over one group. Knows the order of the group's tokens.
class Exchanges {
 public:
  Exchanges(const Context& context, Communicator& group, Communicator* ring)
      : problem_(context.problem),
        ranks_(context.groups.cp->size()),
        first_(context.groups.cp->rank() - group.rank()),
        group_(group),
        ring_size_(ring ? ring->size() : 1),
        ring_rank_(ring ? ring->rank() : 0),
        heads_(problem_, group.size()),
        q_(rows(problem_.lengths.padded_q, heads_.q)),
        kv_(rows(problem_.lengths.padded_kv, heads_.kv)),
        head_groups_(ring ? 1 : head_groups_of(problem_, group.size(), context.backend)) {}

  // How the group's ranks split the heads.
  [[nodiscard]] const HeadSplit& heads() const { return heads_; }
  // The number of groups in which a rank's heads are computed. One group is computed while another is transferred.
  [[nodiscard]] std::int64_t head_groups() const { return head_groups_; }
  [[nodiscard]] HeadExchange of_group(std::int64_t index) const {
    return {group_, {.index = index, .count = head_groups_}};
  }

  [[nodiscard]] Item of_queries(const at::Tensor& of_tokens, const at::Tensor& of_heads = {}) const {
    return {.of_tokens = of_tokens, .of_heads = of_heads, .rows = &q_};
  }
  [[nodiscard]] Item of_keys(const at::Tensor& of_tokens, const at::Tensor& of_heads = {}) const {
    return {.of_tokens = of_tokens, .of_heads = of_heads, .rows = &kv_};
  }
  // For a tensor fp32 [heads, tokens].
  [[nodiscard]] Item of_statistic(const at::Tensor& of_tokens, const at::Tensor& of_heads = {}) const {
    return {.of_tokens = of_tokens, .of_heads = of_heads, .rows = &q_, .by_head = true};
  }
  [[nodiscard]] BiasExchange bias(const at::Tensor& shard) const {
    const std::vector<std::int64_t> padded(static_cast<std::size_t>(shard.size(0)), problem_.lengths.padded_q[0]);
    return {problem_, group_, {.by_rank = runs_by_rank(padded), .packed = packed_runs(padded), .heads = heads_.q}};
  }

  // The group's tokens in packed order, which is that of the dual-chunk partition over the ring.
  [[nodiscard]] std::vector<Run> packed_runs(const std::vector<std::int64_t>& padded) const {
    return local_runs(padded, ring_size_, ring_rank_);
  }

  // The part of a statistic that belongs to this rank's heads of one group.
  [[nodiscard]] at::Tensor own_heads(const at::Tensor& of_heads, std::int64_t index) const {
    const std::int64_t count = q_.heads_of(group_.rank()) / head_groups_;
    return of_heads.narrow(0, q_.heads[static_cast<std::size_t>(group_.rank())] + index * count, count);
  }

 private:
  [[nodiscard]] std::vector<Run> runs_by_rank(const std::vector<std::int64_t>& padded) const {
    return gathered_runs(padded, ranks_, first_, group_.size());
  }
  [[nodiscard]] GroupRows rows(const std::vector<std::int64_t>& padded, const std::vector<std::int64_t>& heads) const {
    const std::vector<Run> packed = packed_runs(padded);
    const std::vector<Run>& ordered = CP_MUTATE(
        inner_rows_by_pair, packed,
        ring_size_ > 1 ? gathered_runs(padded, ranks_ / kPair, first_ / kPair, group_.size() / kPair) : packed);
    return {.copies = row_copies(CP_MUTATE(a2a_rows_not_reordered, runs_by_rank(padded), packed), ordered),
            .of_a_rank = total_rows(packed) / group_.size(),
            .heads = heads};
  }

  const AttentionProblem& problem_;
  int ranks_;
  int first_;
  Communicator& group_;
  int ring_size_;
  int ring_rank_;
  HeadSplit heads_;
  GroupRows q_;
  GroupRows kv_;
  std::int64_t head_groups_;
};

// compute(index of the group, its exchange, which has finished) returns the tensors to send back.
using Compute = std::function<std::vector<Item>(std::int64_t, const HeadExchange::Trip&)>;

struct Steps {
  std::string_view coming;
  std::string_view leaving;
};

// Computes the groups of heads one after the other, while messages of other groups are transferred. Groups alternate
// between two streams. The backward reads the tensors that the forward saved for a group on the same stream.
void compute_groups(const Exchanges& exchanges, const std::vector<Item>& items, const Steps& steps,
                    const Compute& compute) {
  const std::int64_t count = exchanges.head_groups();
  std::vector<HeadExchange::Trip> coming;
  coming.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) coming.push_back(exchanges.of_group(i).scatter(items, steps.coming));
  std::vector<HeadExchange::Trip> leaving;
  leaving.reserve(coming.size());
  std::optional<SecondStream> second;
  if (count > 1) second.emplace(items.front().of_tokens.device());
  const auto for_each_group = [&](const std::function<void(std::int64_t)>& body) {
    StreamTurns turns(second ? &*second : nullptr);
    for (std::int64_t i = 0; i < count; ++i) turns.next([&] { body(i); });
  };
  for_each_group([&](std::int64_t i) {
    HeadExchange::Trip& come = coming[static_cast<std::size_t>(i)];
    come.finish();
    leaving.push_back(exchanges.of_group(i).gather(compute(i, come), steps.leaving));
  });
  for_each_group([&](std::int64_t i) { leaving[static_cast<std::size_t>(i)].finish(); });
  if (second) second->join();
}

// A rank without heads computes nothing. So do the other ranks of its ring, which would have the same heads.
bool has_heads(const AttentionOperands& operands) {
  return operands.k.size(1) > 0;
}

RingForward forward_without_heads(const AttentionProblem& problem, const AttentionOperands& operands) {
  RingForward none{.sums = make_empty_sums(operands, problem.max_logit), .last = {}};
  fill_if_empty(none.sums);
  return none;
}

PackedGradients gradients_without_heads(const AttentionProblem& problem, const AttentionOperands& operands) {
  PackedGradients none = make_gradient_sums(operands);
  if (has_dbias(problem)) none.dbias = at::zeros_like(operands.bias, operands.bias.options().dtype(at::kFloat));
  return none;
}

}  // namespace

PackedForward a2a_forward(const Context& context, Communicator& group, Communicator* ring, const PackedInputs& inputs) {
  const Exchanges exchanges(context, group, ring);
  const at::Tensor& q = inputs.operands.q;
  PackedForward result{.out = at::empty({q.size(0), q.size(1), inputs.operands.v.size(2)}, q.options()),
                       .lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat)),
                       .max_logit = {}};
  if (context.problem.max_logit) result.max_logit = at::zeros({q.size(1)}, result.lse.options());
  const std::vector<Run> q_runs = exchanges.packed_runs(context.problem.lengths.padded_q);
  const std::vector<Item> items{exchanges.of_queries(q),
                                exchanges.of_keys(exchanges.heads().repeated(inputs.operands.k)),
                                exchanges.of_keys(exchanges.heads().repeated(inputs.operands.v))};
  const Steps steps{.coming = "a2a q, k, v", .leaving = "a2a out and lse"};
  const auto saved = std::make_shared<SavedHeads>();
  compute_groups(exchanges, items, steps, [&](std::int64_t group_index, const HeadExchange::Trip& come) {
    AttentionOperands operands = inputs.operands;
    operands.q = come.of_heads(0);
    operands.k = come.of_heads(1);
    operands.v = come.of_heads(2);
    if (operands.bias.defined()) operands.bias = exchanges.bias(operands.bias).scatter(operands.bias);
    at::Tensor sink;
    if (inputs.sink.defined() && has_heads(operands)) sink = exchanges.own_heads(inputs.sink, group_index);
    if (CP_MUTATE(a2a_sink_heads, false, sink.defined())) sink = inputs.sink.narrow(0, 0, sink.size(0));
    RingForward over_ring =
        has_heads(operands) ? ring_forward(context, ring, operands) : forward_without_heads(context.problem, operands);
    const PackedForward own = finish_forward(context.problem, q_runs, sink, q.scalar_type(), std::move(over_ring.sums));
    if (own.max_logit.defined()) exchanges.own_heads(result.max_logit, group_index).copy_(own.max_logit);
    saved->head_groups.push_back({.operands = operands, .out = own.out, .lse = own.lse, .last = over_ring.last});
    return std::vector<Item>{exchanges.of_queries(result.out, own.out), exchanges.of_statistic(result.lse, own.lse)};
  });
  result.saved = saved;
  // Each head has one rank: the others add zeros.
  if (result.max_logit.defined()) group.all_reduce(result.max_logit, ReduceOp::sum, "a2a max_logit")->wait();
  return result;
}

PackedGradients a2a_backward(const Context& context, Communicator& group, Communicator* ring,
                             const PackedInputs& inputs, const AttentionBackwardOperands& backward,
                             const SavedForward& saved) {
  const Exchanges exchanges(context, group, ring);
  const std::vector<SavedHeads::Heads>& head_groups = dynamic_cast<const SavedHeads&>(saved).head_groups;
  const HeadSplit& split = exchanges.heads();
  // Sums over slots are fp32.
  const auto slots_of = [&](const at::Tensor& kv) {
    const auto dtype = split.repeats() ? at::kFloat : kv.scalar_type();
    return at::empty({kv.size(0), split.kv.back(), kv.size(2)}, kv.options().dtype(dtype));
  };
  PackedGradients result{.dq = at::empty_like(inputs.operands.q),
                         .dk = slots_of(inputs.operands.k),
                         .dv = slots_of(inputs.operands.v),
                         .dbias = {}};
  std::vector<Item> items{exchanges.of_queries(backward.dout)};
  if (backward.delta.defined()) items.push_back(exchanges.of_statistic(backward.delta));
  const Steps steps{.coming = "a2a dout", .leaving = "a2a dq, dk, dv"};
  compute_groups(exchanges, items, steps, [&](std::int64_t group_index, const HeadExchange::Trip& come) {
    const auto kept = CP_MUTATE(saved_of_first_group, group_index, std::int64_t{0});
    const SavedHeads::Heads& heads = head_groups.at(static_cast<std::size_t>(kept));
    AttentionBackwardOperands of_heads{.dout = come.of_heads(0), .lse = heads.lse, .delta = {}, .out = heads.out};
    if (backward.delta.defined()) of_heads.delta = come.of_heads(1);
    const PackedGradients sums = has_heads(heads.operands)
                                     ? ring_backward(context, ring, heads.operands, of_heads, heads.last)
                                     : gradients_without_heads(context.problem, heads.operands);
    const PackedGradients own = finish_backward(heads.operands, sums);
    if (own.dbias.defined()) result.dbias = exchanges.bias(inputs.operands.bias).gather(own.dbias);
    const auto dtype = result.dk.scalar_type();
    return std::vector<Item>{exchanges.of_queries(result.dq, own.dq),
                             exchanges.of_keys(result.dk, (split.repeats() ? sums : own).dk.to(dtype)),
                             exchanges.of_keys(result.dv, (split.repeats() ? sums : own).dv.to(dtype))};
  });
  result.dk = split.summed(result.dk, inputs.operands.k);
  result.dv = split.summed(result.dv, inputs.operands.v);
  return result;
}

CommSteps a2a_steps() {
  return {
      .forward = [](const Context& context,
                    const PackedInputs& inputs) { return a2a_forward(context, *context.groups.cp, nullptr, inputs); },
      .backward =
          [](const Context& context, const PackedInputs& inputs, const AttentionBackwardOperands& backward,
             const SavedForward& saved) {
            return a2a_backward(context, *context.groups.cp, nullptr, inputs, backward, saved);
          },
      .get_ready =
          [](const FutureRank& rank, Pass pass, FastBackend& backend) {
            const std::int64_t groups = head_groups_of(rank.problem, rank.ranks, backend);
            const AttentionOperands like = rank.operands_like({.heads = rank.ranks, .head_groups = groups});
            if (has_heads(like)) backend.get_ready(ring_plans(rank.problem, 1, 0), like, pass);
          },
  };
}

}  // namespace cp_pool
