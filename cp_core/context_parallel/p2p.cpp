#include "cp_core/context_parallel/p2p.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cp_core/context_parallel/ring.h"
#include "cp_core/context_parallel/step_gradients.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

// K and V, or their gradients: one message carries both.
struct KeyValues {
  at::Tensor k;
  at::Tensor v;
};

// Where another rank's K and V, or gradients, arrive: `rows` rows like these of the operands.
KeyValues make_inbox(const AttentionOperands& operands, std::int64_t rows, at::ScalarType dtype) {
  const auto make = [&](const at::Tensor& like) {
    return at::empty({rows, like.size(1), like.size(2)}, like.options().dtype(dtype));
  };
  KeyValues inbox{.k = make(operands.k), .v = make(operands.v)};
#ifdef CP_POOL_MUTANTS
  // Memory used before may hold the very numbers that a skipped wait leaves out.
  inbox.k.zero_();
  inbox.v.zero_();
#endif
  return inbox;
}

Communicator::WorkPtr send_on(const Ring& ring, Communicator& group, const KeyValues& sent, const KeyValues& inbox,
                              std::string_view what) {
  const std::array sends{sent.k, sent.v};
  std::array receives{inbox.k, inbox.v};
  if (CP_MUTATE(kv_places_swapped, false, inbox.k.numel() == inbox.v.numel())) std::swap(receives[0], receives[1]);
  return group.exchange_many(sends, ring.next(), receives, ring.previous(), what);
}

// K and V on their turn around the ring: at each step those held can be read while they are sent on and the next
// arrive. A rank's own are sent from where they lie.
class TravellingKeyValues {
 public:
  TravellingKeyValues(const Ring& ring, Communicator* group, const AttentionOperands& operands, std::string_view pass)
      : ring_(ring), group_(group), operands_(operands), pass_(pass), held_{.k = operands.k, .v = operands.v} {}

  const KeyValues& start_step(int step) {
    if (step + 1 < ring_.size) {
      if (!inbox_.k.defined()) inbox_ = make_inbox(operands_, operands_.k.size(0), operands_.k.scalar_type());
      exchange_ = send_on(ring_, *group_, held_, inbox_, fmt::format("p2p {} step {}", pass_, step));
      own_held_ = step == 0;
    }
    return held_;
  }

  void finish_step() {
    if (!exchange_) return;
    if (CP_MUTATE(p2p_wait_skipped, true, false)) exchange_->wait();
    exchange_.reset();
    std::swap(held_, inbox_);
    if (own_held_) inbox_ = {};
  }

 private:
  const Ring& ring_;
  Communicator* group_;
  const AttentionOperands& operands_;
  std::string_view pass_;
  KeyValues held_;
  KeyValues inbox_;
  bool own_held_ = false;
  Communicator::WorkPtr exchange_;
};

// What a message of gradients holds.
struct GradientMessage {
  KeyValues tensors;
  std::vector<RowCopy> rows;
};

// The gradients of K and V follow them one step behind, from the second step on: a rank adds its own to those of the
// ranks that held the same K and V before, and sends the sum on. After the last step they arrive at their owner, whose
// own, of the first step, stayed at home.
//
// A message that is one rank's contribution, given by its kernel as it is, has the dtype of K and V and the rows of the
// tiles: it is lossless (docs/numerics.md). All others are sums: fp32, all rows. Sender and receiver both tell which
// from the sender's plan.
class TravellingGradients {
 public:
  TravellingGradients(const Context& context, const Ring& ring, Communicator* group, const AttentionOperands& operands)
      : context_(context), ring_(ring), group_(group), operands_(operands) {}

  // own: of this step.
  void pass_on(int step, KeyGradients own) {
    RowSum dk(operands_.k);
    RowSum dv(operands_.v);
    if (step > 1) {
      exchange_->wait();
      add_arrived(dk, dv);
    }
    dk.add(std::move(own.dk));
    dv.add(std::move(own.dv));
    if (step > 1) {
      for (RowSum* sum : {&dk, &dv}) {
        const at::Tensor whole = sum->whole_fp32();
        if (CP_MUTATE(dkv_rounded_each_step, false, true)) whole.copy_(whole.to(at::kBFloat16));
      }
    }
    sent_ = {.tensors = {.k = dk.rows().tensor, .v = dv.rows().tensor}, .rows = dk.rows().rows};
    arriving_ = make_arrival(step);
    exchange_ =
        send_on(ring_, *group_, sent_.tensors, arriving_.tensors, fmt::format("p2p backward step {} gradients", step));
  }

  // Adds to this rank's own what all others contribute to its gradients.
  void come_home(RowSum& dk, RowSum& dv) {
    if (!exchange_) return;
    if (CP_MUTATE(dkv_wait_skipped, true, false)) exchange_->wait();
    dk.add_last({.tensor = arriving_.tensors.k, .rows = arriving_.rows});
    dv.add_last({.tensor = arriving_.tensors.v, .rows = arriving_.rows});
  }

 private:
  // What the previous rank sends after this step.
  [[nodiscard]] GradientMessage make_arrival(int step) const {
    const std::int64_t all = operands_.k.size(0);
    if (step == 1) {
      const TilePlan plan = ring_plan(context_.problem, Ring(ring_.size, ring_.previous()), step);
      if (context_.backend.contributes_once(plan, operands_)) {
        const std::vector<RowCopy> rows = key_rows_of(tiles_of(plan));
        return {.tensors = make_inbox(operands_, row_count(rows), operands_.k.scalar_type()), .rows = rows};
      }
    }
    return {.tensors = make_inbox(operands_, all, at::kFloat), .rows = {{.source = 0, .target = 0, .count = all}}};
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

AttentionSums ring_forward(const Context& context, Communicator* group, const AttentionOperands& operands) {
  const Ring ring(group);
  const std::vector<TilePlan> plans = ring_plans(context.problem, ring.size, ring.rank);
  const bool has_sink = context.problem.softmax != SoftmaxType::vanilla;
  if (ring.size == 1 && !context.problem.bias && !context.problem.max_logit && !has_sink) {
    if (auto whole = context.backend.forward_whole(plans.front(), operands)) {
      return {.out = std::move(whole->out), .lse = std::move(whole->lse), .max_logit = {}};
    }
  }
  get_ready_for_ring(context.backend, plans, operands, Pass::forward);
  AttentionSums sums = make_empty_sums(operands, context.problem.max_logit);
  AttentionOperands step_operands = operands;
  TravellingKeyValues key_values(ring, group, operands, "forward");
  for (int step = 0; step < ring.size; ++step) {
    const KeyValues& held = key_values.start_step(step);
    step_operands.k = held.k;
    step_operands.v = held.v;
    const Then then = step + 1 == ring.size && !has_sink ? Then::nothing : Then::more;
    attend(context.backend, plans[static_cast<std::size_t>(step)], step_operands, sums, then);
    key_values.finish_step();
  }
  fill_if_empty(sums);
  if (sums.max_logit.defined() && group && CP_MUTATE(max_logit_of_own_queries, true, false)) {
    group->all_reduce(sums.max_logit, ReduceOp::max, "p2p forward max_logit")->wait();
  }
  return sums;
}

AttentionGradientSums ring_backward(const Context& context, Communicator* group, const AttentionOperands& operands,
                                    const AttentionBackwardOperands& backward) {
  const Ring ring(group);
  const std::vector<TilePlan> plans = ring_plans(context.problem, ring.size, ring.rank);
  if (ring.size == 1 && !context.problem.bias) {
    if (auto whole = context.backend.backward_whole(plans.front(), operands, backward)) {
      return {.dq = std::move(whole->dq), .dk = std::move(whole->dk), .dv = std::move(whole->dv), .dbias = {}};
    }
  }
  get_ready_for_ring(context.backend, plans, operands, Pass::backward);
  StepGradients gradients(context, plans.front(), own_head_groups(context.backend, plans, operands), operands,
                          backward);
  TravellingKeyValues key_values(ring, group, operands, "backward");
  TravellingGradients travelling(context, ring, group, operands);
  for (int step = 0; step < ring.size; ++step) {
    const KeyValues& held = key_values.start_step(step);
    if (step == 0) {
      gradients.start_own();
    } else {
      travelling.pass_on(step, gradients.other_step(plans[static_cast<std::size_t>(step)], held.k, held.v));
    }
    key_values.finish_step();
  }
  gradients.finish_own();
  RowSum dk = gradients.own_dk();
  RowSum dv = gradients.own_dv();
  travelling.come_home(dk, dv);
  return {.dq = gradients.dq(), .dk = dk.whole(), .dv = dv.whole(), .dbias = gradients.dbias()};
}

PackedForward p2p_forward(const Context& context, const PackedInputs& inputs) {
  Communicator& cp = *context.groups.cp;
  const std::vector<Run> q_runs = local_runs(context.problem.lengths.padded_q, cp.size(), cp.rank());
  return finish_forward(context.problem, q_runs, inputs.sink, inputs.operands.q.scalar_type(),
                        ring_forward(context, &cp, inputs.operands));
}

PackedGradients p2p_backward(const Context& context, const PackedInputs& inputs,
                             const AttentionBackwardOperands& backward) {
  return finish_backward(inputs.operands, ring_backward(context, context.groups.cp.get(), inputs.operands, backward));
}

}  // namespace cp_pool
