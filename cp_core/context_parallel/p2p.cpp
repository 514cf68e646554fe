#include "cp_core/context_parallel/p2p.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cp_core/context_parallel/comm_steps.h"
#include "cp_core/context_parallel/step_gradients.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

// The ring of ranks around which K and V are passed.
struct Ring {
  Ring(int ranks, int own_rank) : size(ranks), rank(own_rank) {}
  // group: null for a ring of one.
  explicit Ring(const Communicator* group) : Ring(group ? group->size() : 1, group ? group->rank() : 0) {}

  [[nodiscard]] int next() const { return (rank + 1) % size; }
  [[nodiscard]] int previous() const { return (rank + size - 1) % size; }
  // Returns the rank whose K and V this rank holds at a step of the forward. The backward takes the same steps from
  // last to first.
  [[nodiscard]] int owner(int step) const {
    const int later = CP_MUTATE(ring_order, step, step + 1);
    const int distance = CP_MUTATE(odd_ring_order, later, size % 2 == 1 ? step + 1 : step) % size;
    return (rank + CP_MUTATE(ring_direction, size - distance, distance)) % size;
  }

  int size;
  int rank;
};

// The tiles of one step of a rank.
TilePlan ring_plan(const AttentionProblem& problem, const Ring& ring, int step) {
  return make_plan(problem, local_runs(problem.lengths.padded_q, ring.size, ring.rank),
                   local_runs(problem.lengths.padded_kv, ring.size, ring.owner(step)));
}

// Allocates memory for K and V of another rank, or their gradients: `rows` rows with the heads and dims of like_these.
KeyValues make_inboxes(const KeyValues& like_these, std::int64_t rows, at::ScalarType dtype) {
  return {.k = make_inbox(like_these.k, rows, dtype), .v = make_inbox(like_these.v, rows, dtype)};
}

// The ranks that a rank sends to and receives from. The forward passes K and V to the next rank, the backward to the
// previous one.
struct Neighbours {
  Neighbours(const Ring& ring, Pass pass)
      : to(pass == Pass::forward ? ring.next() : ring.previous()),
        from(pass == Pass::forward ? ring.previous() : ring.next()) {}

  int to;
  int from;
};

// Sends K and V, or their gradients, as one message.
Communicator::WorkPtr pass_on(const Neighbours& neighbours, Communicator& group, const KeyValues& sent,
                              const KeyValues& inbox, std::string_view what) {
  const std::array sends{sent.k, sent.v};
  std::array receives{inbox.k, inbox.v};
  if (CP_MUTATE(kv_places_swapped, false, inbox.k.numel() == inbox.v.numel())) std::swap(receives[0], receives[1]);
  return group.exchange_many(sends, neighbours.to, receives, neighbours.from, what);
}

// Passes K and V around the ring. At each step the held K and V can be read while they are sent on and the next ones
// arrive. The first step sends the caller's tensors, which are not changed.
class TravellingKeyValues {
 public:
  TravellingKeyValues(const Ring& ring, Communicator* group, KeyValues first, Pass pass)
      : neighbours_(ring, pass), group_(group), pass_(name_of(pass)), held_(std::move(first)) {}

  [[nodiscard]] const KeyValues& held() const { return held_; }

  // The held K and V can still be read until finish_step().
  void send_on(int step) {
    if (!inbox_.k.defined()) inbox_ = make_inboxes(held_, held_.k.size(0), held_.k.scalar_type());
    exchange_ = pass_on(neighbours_, *group_, held_, inbox_, fmt::format("p2p {} step {}", pass_, step));
  }

  void finish_step() {
    if (!exchange_) return;
    if (CP_MUTATE(p2p_wait_skipped, true, false)) exchange_->wait();
    exchange_.reset();
    std::swap(held_, inbox_);
    if (std::exchange(first_held_, false)) inbox_ = {};
  }

 private:
  Neighbours neighbours_;
  Communicator* group_;
  std::string_view pass_;
  KeyValues held_;
  KeyValues inbox_;
  bool first_held_ = true;
  Communicator::WorkPtr exchange_;
};

// The contents of a message of gradients.
struct GradientMessage {
  KeyValues tensors;
  std::vector<RowCopy> rows;
};

// Passes the gradients of K and V around the ring, one step after K and V. A rank adds its contribution to those of the
// ranks that held the same K and V before, and sends the sum on. The last rank before the owner sends the sum to the
// owner, which computes its own contribution meanwhile.
//
// A contribution of a single rank is sent as its kernel rounded it, in the dtype of K and V and with only the rows of
// the tiles; that loses nothing (docs/numerics.md). All other messages are fp32 sums of all rows. Sender and receiver
// both derive the kind of message from the sender's plan.
class TravellingGradients {
 public:
  TravellingGradients(const Context& context, const Ring& ring, Communicator* group, const AttentionOperands& operands)
      : context_(context), ring_(ring), group_(group), operands_(operands) {}

  // own: this rank's contribution of this step.
  void pass_on(int step, KeyGradients own) {
    RowSum dk(operands_.k);
    RowSum dv(operands_.v);
    const bool first = step == ring_.size - 1;
    if (!first) {
      exchange_->wait();
      add_arrived(dk, dv);
    }
    dk.add(std::move(own.dk));
    dv.add(std::move(own.dv));
    if (!first) {
      for (RowSum* sum : {&dk, &dv}) {
        const at::Tensor whole = sum->whole_fp32();
        if (CP_MUTATE(dkv_rounded_each_step, false, true)) whole.copy_(whole.to(at::kBFloat16));
      }
    }
    sent_ = {.tensors = {.k = dk.rows().tensor, .v = dv.rows().tensor}, .rows = dk.rows().rows};
    arriving_ = make_arrival(step);
    exchange_ = cp_pool::pass_on({ring_, Pass::backward}, *group_, sent_.tensors, arriving_.tensors,
                                 fmt::format("p2p backward step {} gradients", step));
  }

  // Adds the contributions of all other ranks to this rank's own gradients.
  void return_to_owner(RowSum& dk, RowSum& dv) {
    if (!exchange_) return;
    if (CP_MUTATE(dkv_wait_skipped, true, false)) exchange_->wait();
    dk.add_last({.tensor = arriving_.tensors.k, .rows = arriving_.rows});
    dv.add_last({.tensor = arriving_.tensors.v, .rows = arriving_.rows});
  }

 private:
  // Allocates memory for the message that the next rank sends after this step.
  [[nodiscard]] GradientMessage make_arrival(int step) const {
    const KeyValues like_these{.k = operands_.k, .v = operands_.v};
    const std::int64_t all = operands_.k.size(0);
    if (step == ring_.size - 1) {
      const TilePlan plan = ring_plan(context_.problem, Ring(ring_.size, ring_.next()), step);
      if (context_.backend.contributes_once(plan, operands_)) {
        const std::vector<RowCopy> rows = key_rows_of(tiles_of(plan));
        return {.tensors = make_inboxes(like_these, row_count(rows), operands_.k.scalar_type()), .rows = rows};
      }
    }
    return {.tensors = make_inboxes(like_these, all, at::kFloat), .rows = {{.source = 0, .target = 0, .count = all}}};
  }

  void add_arrived(RowSum& dk, RowSum& dv) const {
    if (CP_MUTATE(dkv_of_last_rank_only, false, true)) return;
    const GradientMessage& before = CP_MUTATE(dkv_sum_of_sent, arriving_, sent_);
    dk.add({.tensor = before.tensors.k, .rows = before.rows});
    dv.add({.tensor = before.tensors.v, .rows = before.rows});
  }

  const Context& context_;
  const Ring& ring_;
  Communicator* group_;
  const AttentionOperands& operands_;
  GradientMessage sent_;
  GradientMessage arriving_;
  Communicator::WorkPtr exchange_;
};

}  // namespace

std::vector<TilePlan> ring_plans(const AttentionProblem& problem, int ranks, int rank) {
  const Ring ring(ranks, rank);
  std::vector<TilePlan> plans;
  plans.reserve(static_cast<std::size_t>(ring.size));
  for (int step = 0; step < ring.size; ++step) plans.push_back(ring_plan(problem, ring, step));
  return plans;
}

RingForward ring_forward(const Context& context, Communicator* group, const AttentionOperands& operands) {
  const Ring ring(group);
  const std::vector<TilePlan> plans = ring_plans(context.problem, ring.size, ring.rank);
  const bool has_sink = context.problem.softmax != SoftmaxType::vanilla;
  context.backend.get_ready(plans, operands, Pass::forward);
  AttentionSums sums = make_empty_sums(operands, context.problem.max_logit);
  AttentionOperands step_operands = operands;
  TravellingKeyValues key_values(ring, group, {.k = operands.k, .v = operands.v}, Pass::forward);
  for (int step = 0; step < ring.size; ++step) {
    const bool last = step + 1 == ring.size;
    if (!last) key_values.send_on(step);
    step_operands.k = key_values.held().k;
    step_operands.v = key_values.held().v;
    attend(context.backend, plans[static_cast<std::size_t>(step)], step_operands, sums,
           last && !has_sink ? Then::nothing : Then::more);
    key_values.finish_step();
  }
  fill_if_empty(sums);
  if (sums.max_logit.defined() && group && CP_MUTATE(max_logit_of_own_queries, true, false)) {
    group->all_reduce(sums.max_logit, ReduceOp::max, "p2p forward max_logit")->wait();
  }
  return {.sums = std::move(sums), .last = ring.size > 1 ? key_values.held() : KeyValues{}};
}

PackedGradients ring_backward(const Context& context, Communicator* group, const AttentionOperands& operands,
                              const AttentionBackwardOperands& backward, const KeyValues& last) {
  const Ring ring(group);
  const std::vector<TilePlan> plans = ring_plans(context.problem, ring.size, ring.rank);
  context.backend.get_ready(plans, operands, Pass::backward);
  StepGradients gradients(context, plans.front(), /*head_groups=*/1, operands, backward);
  TravellingKeyValues key_values(ring, group, last, Pass::backward);
  TravellingGradients travelling(context, ring, group, operands);
  for (int step = ring.size - 1; step > 0; --step) {
    if (step > 1) key_values.send_on(step);
#ifdef CP_POOL_MUTANTS
    const KeyValues own{.k = operands.k, .v = operands.v};
#endif
    const auto& [k, v] = CP_MUTATE(backward_kv_is_own, key_values.held(), own);
    travelling.pass_on(step, gradients.other_step(plans[static_cast<std::size_t>(step)], k, v));
    key_values.finish_step();
  }
  gradients.start_own();
  gradients.finish_own();
  RowSum dk = gradients.own_dk();
  RowSum dv = gradients.own_dv();
  travelling.return_to_owner(dk, dv);
  return {.dq = gradients.dq(), .dk = dk.whole(), .dv = dv.whole(), .dbias = gradients.dbias()};
}

namespace {

struct SavedRing final : SavedForward {
  explicit SavedRing(KeyValues held_last) : last(std::move(held_last)) {}

  KeyValues last;  // K and V of the last step; undefined in a ring of one
};

PackedForward p2p_forward(const Context& context, const PackedInputs& inputs) {
  Communicator& cp = *context.groups.cp;
  const std::vector<Run> q_runs = local_runs(context.problem.lengths.padded_q, cp.size(), cp.rank());
  RingForward ring = ring_forward(context, &cp, inputs.operands);
  PackedForward forward =
      finish_forward(context.problem, q_runs, inputs.sink, inputs.operands.q.scalar_type(), std::move(ring.sums));
  forward.saved = std::make_shared<SavedRing>(std::move(ring.last));
  return forward;
}

PackedGradients p2p_backward(const Context& context, const PackedInputs& inputs,
                             const AttentionBackwardOperands& backward, const SavedForward& saved) {
  const KeyValues& last = dynamic_cast<const SavedRing&>(saved).last;
  return finish_backward(inputs.operands,
                         ring_backward(context, context.groups.cp.get(), inputs.operands, backward, last));
}

}  // namespace

CommSteps p2p_steps() {
  return {
      .forward = p2p_forward,
      .backward = p2p_backward,
      .get_ready =
          [](const FutureRank& rank, Pass pass, FastBackend& backend) {
            backend.get_ready(ring_plans(rank.problem, rank.ranks, rank.rank),
                              rank.operands_like({.q = rank.ranks, .kv = rank.ranks}), pass);
          },
  };
}

}  // namespace cp_pool
