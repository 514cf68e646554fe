#include "cp_core/context_parallel/a2a.h"

#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "cp_core/context_parallel/comm_steps.h"
#include "cp_core/context_parallel/core.h"
#include "cp_core/context_parallel/head_exchange.h"
#include "cp_core/context_parallel/p2p.h"
#include "cp_core/context_parallel/ring.h"
#include "cp_core/context_parallel/second_stream.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

// Exchanges a bias and its gradient among the ranks of an a2a. A bias with a matrix for each head is scattered by
// heads, as q is. A bias that all heads share is gathered, so that every rank has the rows of all queries of the group.
// A bias that every rank holds whole (thd, shape 111s) is not exchanged.
class BiasExchange {
 public:
  // The query positions of the group, in their order before and after the exchange.
  struct Rows {
    std::vector<Run> by_rank;  // before: the positions of the group's ranks, rank by rank
    std::vector<Run> packed;   // after: the same positions in the group's packed order
  };
  // problem.bias must be set. rows: with one sequence for each entry of the bias' batch dimension.
  BiasExchange(const AttentionProblem& problem, Communicator& group, const Rows& rows);

  // Returns the bias for all queries of the group and this rank's heads. bias: this rank's shard (context_parallel.h).
  [[nodiscard]] at::Tensor scatter(const at::Tensor& bias) const;

  // Returns the gradient of this rank's shard, shaped like the shard. dbias: the fp32 gradient of the tensor that
  // scatter() returned. Gradients of ranks that share rows of the bias are summed, except in thd, where the caller must
  // sum the results of all ranks.
  [[nodiscard]] at::Tensor gather(const at::Tensor& dbias) const;

 private:
  [[nodiscard]] bool of_each_head() const;
  [[nodiscard]] bool replicated() const;

  const AttentionProblem& problem_;
  Communicator& group_;
  std::vector<RowCopy> copies_;
};

// Converts [batch, heads, rows, columns] to packed [batch * rows, heads, columns]; unpack_rows() is the inverse.
at::Tensor pack_rows(const at::Tensor& bias) {
  return bias.transpose(1, 2).flatten(0, 1).contiguous();
}

at::Tensor unpack_rows(const at::Tensor& packed, std::int64_t batch) {
  return packed.unflatten(0, {batch, packed.size(0) / batch}).transpose(1, 2).contiguous();
}

BiasExchange::BiasExchange(const AttentionProblem& problem, Communicator& group, const Rows& rows)
    : problem_(problem), group_(group) {
  if (!replicated()) copies_ = row_copies(rows.by_rank, rows.packed);
}

bool BiasExchange::of_each_head() const {
  return problem_.bias && cp_pool::of_each_head(*problem_.bias);
}

bool BiasExchange::replicated() const {
  return problem_.layout == Layout::thd || problem_.bias == BiasShape::shape_111s;
}

at::Tensor BiasExchange::scatter(const at::Tensor& bias) const {
  if (replicated()) {
    if (!of_each_head()) return bias;
    const std::int64_t block = bias.size(1) / group_.size();
    return bias.narrow(1, CP_MUTATE(a2a_bias_heads, group_.rank(), 0) * block, block);
  }
  const at::Tensor rows = pack_rows(bias);
  if (of_each_head()) {
    const GroupRows group_rows{.copies = copies_, .of_a_rank = rows.size(0)};
    std::vector<HeadExchange::Item> items{{.of_tokens = rows, .of_heads = {}, .rows = &group_rows}};
    const HeadExchange exchange(group_, {});
    exchange.make_targets(items);
    exchange.scatter(items, "a2a bias").finish();
    return unpack_rows(items.front().of_heads, bias.size(0));
  }
  at::Tensor by_rank = at::empty({group_.size() * rows.size(0), 1, rows.size(2)}, rows.options());
  group_.all_gather(by_rank, rows, "a2a bias rows")->wait();
  at::Tensor packed = at::empty_like(by_rank);
  copy_rows(by_rank, packed, copies_);
  return unpack_rows(packed, bias.size(0));
}

at::Tensor BiasExchange::gather(const at::Tensor& dbias) const {
  if (replicated()) {
    if (!of_each_head()) return dbias;
    const std::int64_t block = dbias.size(1);
    at::Tensor of_all_heads =
        at::zeros({dbias.size(0), block * group_.size(), dbias.size(2), dbias.size(3)}, dbias.options());
    of_all_heads.narrow(1, group_.rank() * block, block).copy_(dbias);
    return of_all_heads;
  }
  const at::Tensor packed = pack_rows(dbias);
  if (of_each_head()) {
    const GroupRows group_rows{.copies = copies_, .of_a_rank = packed.size(0) / group_.size()};
    const at::Tensor own =
        at::empty({group_rows.of_a_rank, packed.size(1) * group_.size(), packed.size(2)}, packed.options());
    HeadExchange(group_, {})
        .gather({{.of_tokens = own, .of_heads = packed, .rows = &group_rows}}, "a2a dbias")
        .finish();
    return unpack_rows(own, dbias.size(0));
  }
  at::Tensor by_rank = at::empty_like(packed);
  copy_rows_back(packed, by_rank, copies_);
  at::Tensor own = at::empty({packed.size(0) / group_.size(), 1, packed.size(2)}, packed.options());
  if (CP_MUTATE(a2a_dbias_not_reduced, true, false)) {
    group_.reduce_scatter(own, by_rank, "a2a dbias rows")->wait();
  } else {
    own.copy_(by_rank.narrow(0, group_.rank() * own.size(0), own.size(0)));
  }
  return unpack_rows(own, dbias.size(0));
}

using Item = HeadExchange::Item;

// Returns the number of groups in which a rank computes its block of heads. One group is computed while the next one is
// transferred. The number is the same on every rank. ranks: the number of ranks that share the heads.
std::int64_t head_groups_of(const AttentionProblem& problem, int ranks, const FastBackend& backend) {
  if (problem.bias) return 1;
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
        q_(rows(problem_.lengths.padded_q)),
        kv_(rows(problem_.lengths.padded_kv)),
        head_groups_(ring ? 1 : head_groups_of(problem_, group.size(), context.fast)) {}

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
    return {problem_, group_, {.by_rank = runs_by_rank(padded), .packed = packed_runs(padded)}};
  }

  // The group's tokens in packed order, which is that of the dual-chunk partition over the ring.
  [[nodiscard]] std::vector<Run> packed_runs(const std::vector<std::int64_t>& padded) const {
    return local_runs(padded, ring_size_, ring_rank_);
  }

  // The part of a statistic that belongs to this rank's heads of one group.
  [[nodiscard]] at::Tensor own_heads(const at::Tensor& of_heads, std::int64_t index) const {
    const std::int64_t block = of_heads.size(0) / group_.size();
    const std::int64_t first = CP_MUTATE(a2a_sink_heads, group_.rank(), 0) * block;
    const std::int64_t count = block / head_groups_;
    return of_heads.narrow(0, first + index * count, count).contiguous();
  }

 private:
  [[nodiscard]] std::vector<Run> runs_by_rank(const std::vector<std::int64_t>& padded) const {
    return gathered_runs(padded, ranks_, first_, group_.size());
  }
  [[nodiscard]] GroupRows rows(const std::vector<std::int64_t>& padded) const {
    const std::vector<Run> packed = packed_runs(padded);
    return {.copies = row_copies(CP_MUTATE(a2a_rows_not_reordered, runs_by_rank(padded), packed), packed),
            .of_a_rank = total_rows(packed) / group_.size()};
  }

  const AttentionProblem& problem_;
  int ranks_;
  int first_;
  Communicator& group_;
  int ring_size_;
  int ring_rank_;
  GroupRows q_;
  GroupRows kv_;
  std::int64_t head_groups_;
};

// The tensors of one group of heads that are sent to this rank.
class Arrival {
 public:
  // items: with of_heads undefined; it is allocated here.
  Arrival(const Exchanges& exchanges, std::int64_t group_index, std::vector<Item> items)
      : exchange_(exchanges.of_group(group_index)), items_(std::move(items)) {
    exchange_.make_targets(items_);
  }

  void start(std::string_view what) { trip_.emplace(exchange_.scatter(items_, what)); }
  void finish() { trip_->finish(); }
  // The arrived tensors, in the order of the items.
  [[nodiscard]] const at::Tensor& operator[](std::size_t i) const { return items_[i].of_heads; }

 private:
  HeadExchange exchange_;
  std::vector<Item> items_;
  std::optional<HeadExchange::Trip> trip_;
};

// compute(index of the group, arrived tensors) returns the tensors to send back.
using Compute = std::function<std::vector<Item>(std::int64_t, const Arrival&)>;

struct Steps {
  std::string_view coming;
  std::string_view leaving;
};

// Computes the groups of heads one after the other, while messages of other groups are transferred. Groups alternate
// between two streams. The backward reads the tensors that the forward saved for a group on the same stream.
void compute_groups(const Exchanges& exchanges, const std::vector<Item>& items, const Steps& steps,
                    const Compute& compute) {
  const std::int64_t count = exchanges.head_groups();
  std::vector<Arrival> coming;
  coming.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    coming.emplace_back(exchanges, i, items);
    coming.back().start(steps.coming);
  }
  std::vector<HeadExchange::Trip> leaving;
  leaving.reserve(coming.size());
  std::optional<SecondStream> second;
  if (count > 1) second.emplace(items.front().of_tokens.device());
  const auto for_each_group = [&](const std::function<void(std::int64_t)>& body) {
    StreamTurns turns(second ? &*second : nullptr);
    for (std::int64_t i = 0; i < count; ++i) turns.next([&] { body(i); });
  };
  for_each_group([&](std::int64_t i) {
    Arrival& come = coming[static_cast<std::size_t>(i)];
    come.finish();
    leaving.push_back(exchanges.of_group(i).gather(compute(i, come), steps.leaving));
  });
  for_each_group([&](std::int64_t i) { leaving[static_cast<std::size_t>(i)].finish(); });
  if (second) second->join();
}

}  // namespace

PackedForward a2a_forward(const Context& context, Communicator& group, Communicator* ring, const PackedInputs& inputs) {
  const Exchanges exchanges(context, group, ring);
  const at::Tensor& q = inputs.operands.q;
  PackedForward result{.out = at::empty({q.size(0), q.size(1), inputs.operands.v.size(2)}, q.options()),
                       .lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat)),
                       .max_logit = {}};
  at::Tensor max_logits;  // [this rank's heads]
  if (context.problem.max_logit) max_logits = at::empty({q.size(1) / group.size()}, result.lse.options());
  const std::vector<Run> q_runs = exchanges.packed_runs(context.problem.lengths.padded_q);
  const std::vector<Item> items{exchanges.of_queries(q), exchanges.of_keys(inputs.operands.k),
                                exchanges.of_keys(inputs.operands.v)};
  const Steps steps{.coming = "a2a q, k, v", .leaving = "a2a out and lse"};
  const auto saved = std::make_shared<SavedHeads>();
  compute_groups(exchanges, items, steps, [&](std::int64_t group_index, const Arrival& come) {
    AttentionOperands operands = inputs.operands;
    operands.q = come[0];
    operands.k = come[1];
    operands.v = come[2];
    if (operands.bias.defined()) operands.bias = exchanges.bias(operands.bias).scatter(operands.bias);
    const at::Tensor sink = inputs.sink.defined() ? exchanges.own_heads(inputs.sink, group_index) : at::Tensor();
    RingForward over_ring = ring_forward(context, ring, operands);
    const PackedForward own = finish_forward(context.problem, q_runs, sink, q.scalar_type(), std::move(over_ring.sums));
    if (max_logits.defined()) {
      narrowed(max_logits, 0, {.index = group_index, .count = exchanges.head_groups()}).copy_(own.max_logit);
    }
    saved->head_groups.push_back({.operands = operands, .out = own.out, .lse = own.lse, .last = over_ring.last});
    return std::vector<Item>{exchanges.of_queries(result.out, own.out), exchanges.of_statistic(result.lse, own.lse)};
  });
  result.saved = saved;
  if (max_logits.defined()) {
    result.max_logit = at::empty({context.problem.heads}, max_logits.options());
    group.all_gather(result.max_logit, max_logits, "a2a max_logit")->wait();
  }
  return result;
}

PackedGradients a2a_backward(const Context& context, Communicator& group, Communicator* ring,
                             const PackedInputs& inputs, const AttentionBackwardOperands& backward,
                             const SavedForward& saved) {
  const Exchanges exchanges(context, group, ring);
  const std::vector<SavedHeads::Heads>& head_groups = dynamic_cast<const SavedHeads&>(saved).head_groups;
  PackedGradients result{.dq = at::empty_like(inputs.operands.q),
                         .dk = at::empty_like(inputs.operands.k),
                         .dv = at::empty_like(inputs.operands.v),
                         .dbias = {}};
  std::vector<Item> items{exchanges.of_queries(backward.dout)};
  if (backward.delta.defined()) items.push_back(exchanges.of_statistic(backward.delta));
  const Steps steps{.coming = "a2a dout", .leaving = "a2a dq, dk, dv"};
  compute_groups(exchanges, items, steps, [&](std::int64_t group_index, const Arrival& come) {
    const auto kept = CP_MUTATE(saved_of_first_group, group_index, std::int64_t{0});
    const SavedHeads::Heads& heads = head_groups.at(static_cast<std::size_t>(kept));
    AttentionBackwardOperands of_heads{.dout = come[0], .lse = heads.lse, .delta = {}, .out = heads.out};
    if (backward.delta.defined()) of_heads.delta = come[1];
    const PackedGradients own =
        finish_backward(heads.operands, ring_backward(context, ring, heads.operands, of_heads, heads.last));
    if (own.dbias.defined()) result.dbias = exchanges.bias(inputs.operands.bias).gather(own.dbias);
    return std::vector<Item>{exchanges.of_queries(result.dq, own.dq), exchanges.of_keys(result.dk, own.dk),
                             exchanges.of_keys(result.dv, own.dv)};
  });
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
            const auto groups = static_cast<int>(head_groups_of(rank.problem, rank.ranks, backend));
            backend.get_ready(ring_plans(rank.problem, 1, 0), rank.operands_like({.heads = rank.ranks * groups}), pass);
          },
  };
}

}  // namespace cp_pool
