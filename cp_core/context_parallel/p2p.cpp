#include "cp_core/context_parallel/p2p.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

struct Ring {
  explicit Ring(const Communicator* group) : Ring(group ? group->size() : 1, group ? group->rank() : 0) {}
  Ring(int ranks, int own) : size(ranks), rank(own) {}

  [[nodiscard]] int next() const { return (rank + 1) % size; }
  [[nodiscard]] int previous() const { return (rank + size - 1) % size; }
  // Whose K and V this rank holds at a step.
  [[nodiscard]] int owner(int step) const {
    const int distance = CP_MUTATE(ring_order, step, step + 1) % size;
    return (rank + CP_MUTATE(ring_direction, size - distance, distance)) % size;
  }

  int size;
  int rank;
};

// K and V, or their gradients, of one rank in one tensor: one message carries both.
struct KeyValues {
  KeyValues(const AttentionOperands& like, at::ScalarType dtype)
      : flat(at::empty({like.k.numel() + like.v.numel()}, like.k.options().dtype(dtype))),
        k(flat.narrow(0, 0, like.k.numel()).view(like.k.sizes())),
        v(flat.narrow(0, value_offset(like), like.v.numel()).view(like.v.sizes())) {}

  static std::int64_t value_offset(const AttentionOperands& like) {
    return CP_MUTATE(mla_value_offset, like.k.numel(), std::min(like.k.numel(), like.v.numel()));
  }

  at::Tensor flat;
  at::Tensor k;
  at::Tensor v;
};

// Where another rank's K and V, or gradients, arrive.
KeyValues make_inbox(const AttentionOperands& operands, at::ScalarType dtype) {
  KeyValues inbox(operands, dtype);
#ifdef CP_POOL_MUTANTS
  // Memory used before may hold the very numbers that a skipped wait leaves out.
  inbox.flat.zero_();
#endif
  return inbox;
}

// K and V on their turn around the ring: at each step those held can be read while they are sent on and the next
// arrive.
class TravellingKeyValues {
 public:
  TravellingKeyValues(const Ring& ring, Communicator* group, const AttentionOperands& operands, std::string_view pass)
      : ring_(ring),
        group_(group),
        pass_(pass),
        held_(operands, operands.k.scalar_type()),
        inbox_(make_inbox(operands, operands.k.scalar_type())) {
    held_.k.copy_(operands.k);
    held_.v.copy_(operands.v);
  }

  const KeyValues& start_step(int step) {
    if (step + 1 < ring_.size) {
      exchange_ = group_->exchange(held_.flat, ring_.next(), inbox_.flat, ring_.previous(),
                                   fmt::format("p2p {} step {}", pass_, step));
    }
    return held_;
  }

  void finish_step() {
    if (!exchange_) return;
    if (CP_MUTATE(p2p_wait_skipped, true, false)) exchange_->wait();
    exchange_.reset();
    std::swap(held_, inbox_);
  }

 private:
  const Ring& ring_;
  Communicator* group_;
  std::string_view pass_;
  KeyValues held_;
  KeyValues inbox_;
  Communicator::WorkPtr exchange_;
};

// The gradients of K and V follow them one step behind: each rank adds its own to those of the ranks that held the
// same K and V before, and sends the sum on. After the last step they arrive at their owner.
class TravellingGradients {
 public:
  TravellingGradients(const Ring& ring, Communicator* group, const AttentionOperands& operands)
      : ring_(ring),
        group_(group),
        own_(operands, at::kFloat),
        leaving_(operands, at::kFloat),
        arriving_(make_inbox(operands, at::kFloat)) {}

  // Where this step's own gradients are added, to nothing.
  const KeyValues& start_step() { return own_; }

  void finish_step(int step) {
    if (ring_.size == 1) return;
    if (exchange_) {
      exchange_->wait();
      add_arrived();
    }
    std::swap(own_, leaving_);
    exchange_ = group_->exchange(leaving_.flat, ring_.next(), arriving_.flat, ring_.previous(),
                                 fmt::format("p2p backward step {} gradients", step));
  }

  // This rank's own, from all ranks.
  const KeyValues& come_home() {
    if (!exchange_) return own_;
    if (CP_MUTATE(dkv_wait_skipped, true, false)) exchange_->wait();
    return arriving_;
  }

 private:
  void add_arrived() {
    const KeyValues& before = CP_MUTATE(dkv_sum_of_sent, arriving_, leaving_);
    CP_MUTATE(dkv_of_last_rank_only, own_.flat.add_(before.flat), own_.flat);
    if (CP_MUTATE(dkv_rounded_each_step, false, true)) own_.flat.copy_(own_.flat.to(at::kBFloat16));
  }

  const Ring& ring_;
  Communicator* group_;
  KeyValues own_;
  KeyValues leaving_;
  KeyValues arriving_;
  Communicator::WorkPtr exchange_;
};

// dq and dbias of the whole pass; dk and dv are each step's own.
AttentionGradientSums make_ring_sums(const AttentionOperands& operands, bool dbias) {
  const auto options = operands.q.options().dtype(at::kFloat);
  AttentionGradientSums sums;
  sums.dq = at::empty(operands.q.sizes(), options);
  sums.dq_empty = true;
  if (dbias) sums.dbias = at::zeros(operands.bias.sizes(), options);
  return sums;
}

}  // namespace

std::vector<TilePlan> ring_plans(const AttentionProblem& problem, int ranks, int rank) {
  const Ring ring(ranks, rank);
  const std::vector<Run> q_runs = local_runs(problem.lengths.padded_q, ranks, rank);
  std::vector<TilePlan> plans;
  plans.reserve(static_cast<std::size_t>(ranks));
  for (int step = 0; step < ranks; ++step) {
    plans.push_back(make_plan(problem, q_runs, local_runs(problem.lengths.padded_kv, ranks, ring.owner(step))));
  }
  return plans;
}

AttentionSums ring_forward(const Context& context, Communicator* group, const AttentionOperands& operands) {
  const Ring ring(group);
  const std::vector<TilePlan> plans = ring_plans(context.problem, ring.size, ring.rank);
  if (ring.size == 1 && !context.problem.bias && !context.problem.max_logit &&
      context.problem.softmax == SoftmaxType::vanilla) {
    if (auto whole = context.backend.forward_whole(plans.front(), operands)) {
      return {.out = std::move(whole->out), .lse = std::move(whole->lse), .max_logit = {}};
    }
  }
  context.backend.get_ready(plans, operands, Pass::forward);
  AttentionSums sums = make_empty_sums(operands, context.problem.max_logit);
  AttentionOperands step_operands = operands;
  TravellingKeyValues key_values(ring, group, operands, "forward");
  for (int step = 0; step < ring.size; ++step) {
    const KeyValues& held = key_values.start_step(step);
    step_operands.k = held.k;
    step_operands.v = held.v;
    attend(context.backend, plans[static_cast<std::size_t>(step)], step_operands, sums);
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
  context.backend.get_ready(plans, operands, Pass::backward);
  AttentionGradientSums sums = make_ring_sums(operands, has_dbias(context.problem));
  AttentionOperands step_operands = operands;
  TravellingKeyValues key_values(ring, group, operands, "backward");
  TravellingGradients gradients(ring, group, operands);
  for (int step = 0; step < ring.size; ++step) {
    const KeyValues& held = key_values.start_step(step);
    const KeyValues& own = gradients.start_step();
    step_operands.k = held.k;
    step_operands.v = held.v;
    sums.dk = own.k;
    sums.dv = own.v;
    sums.dkv_empty = true;
    attend_backward(context.backend, plans[static_cast<std::size_t>(step)], step_operands, backward, sums);
    sums.fill_dkv();
    gradients.finish_step(step);
    key_values.finish_step();
  }
  sums.fill_dq();
  const KeyValues& home = gradients.come_home();
  sums.dk = home.k;
  sums.dv = home.v;
  return sums;
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
