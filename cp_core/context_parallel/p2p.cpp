#include "cp_core/context_parallel/p2p.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

struct Ring {
  explicit Ring(const Communicator* group) : size(group ? group->size() : 1), rank(group ? group->rank() : 0) {}

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

KeyValues pack(const AttentionOperands& operands) {
  KeyValues packed(operands, operands.k.scalar_type());
  packed.k.copy_(operands.k);
  packed.v.copy_(operands.v);
  return packed;
}

// Where the next K and V arrive.
KeyValues make_inbox(const AttentionOperands& operands, at::ScalarType dtype) {
  KeyValues inbox(operands, dtype);
#ifdef CP_POOL_MUTANTS
  // Memory used before may hold the very numbers that a skipped wait leaves out.
  inbox.flat.zero_();
#endif
  return inbox;
}

std::vector<TilePlan> ring_plans(const AttentionProblem& problem, const Ring& ring) {
  const std::vector<Run> q_runs = local_runs(problem.lengths.padded_q, ring.size, ring.rank);
  std::vector<TilePlan> plans;
  for (int step = 0; step < ring.size; ++step) {
    plans.push_back(make_plan(problem, q_runs, local_runs(problem.lengths.padded_kv, ring.size, ring.owner(step))));
  }
  return plans;
}

void add_gradients(KeyValues& to, const KeyValues& from) {
  CP_MUTATE(dkv_of_last_rank_only, to.flat.add_(from.flat), to.flat);
  if (CP_MUTATE(dkv_rounded_each_step, false, true)) to.flat.copy_(to.flat.to(at::kBFloat16));
}

}  // namespace

AttentionSums ring_forward(const Context& context, Communicator* group, const AttentionOperands& operands) {
  const Ring ring(group);
  const std::vector<TilePlan> plans = ring_plans(context.problem, ring);
  AttentionSums sums = make_sums(operands, context.problem.max_logit);
  AttentionOperands held_operands = operands;
  KeyValues held = pack(operands);
  KeyValues inbox = make_inbox(operands, operands.k.scalar_type());
  for (int step = 0; step < ring.size; ++step) {
    Communicator::WorkPtr exchange;
    if (step + 1 < ring.size) {
      exchange = group->exchange(held.flat, ring.next(), inbox.flat, ring.previous(),
                                 fmt::format("p2p forward step {}", step));
    }
    held_operands.k = held.k;
    held_operands.v = held.v;
    attend(context.backend, plans[static_cast<std::size_t>(step)], held_operands, sums);
    if (exchange) {
      if (CP_MUTATE(p2p_forward_wait_skipped, true, false)) exchange->wait();
      std::swap(held, inbox);
    }
  }
  if (sums.max_logit.defined() && group && CP_MUTATE(max_logit_of_own_queries, true, false)) {
    group->all_reduce(sums.max_logit, ReduceOp::max, "p2p forward max_logit")->wait();
  }
  return sums;
}

AttentionGradientSums ring_backward(const Context& context, Communicator* group, const AttentionOperands& operands,
                                    const AttentionBackwardOperands& backward) {
  const Ring ring(group);
  const std::vector<TilePlan> plans = ring_plans(context.problem, ring);
  AttentionGradientSums sums = make_gradient_sums(operands, has_dbias(context.problem));
  AttentionOperands held_operands = operands;
  KeyValues held = pack(operands);
  KeyValues inbox = make_inbox(operands, operands.k.scalar_type());
  // The gradients of what is held: this step's own, those that arrive from the ranks that held it before, and those
  // on their way to the next rank.
  KeyValues own(operands, at::kFloat);
  KeyValues arriving = make_inbox(operands, at::kFloat);
  KeyValues leaving(operands, at::kFloat);
  Communicator::WorkPtr gradients;
  for (int step = 0; step < ring.size; ++step) {
    Communicator::WorkPtr exchange;
    if (step + 1 < ring.size) {
      exchange = group->exchange(held.flat, ring.next(), inbox.flat, ring.previous(),
                                 fmt::format("p2p backward step {}", step));
    }
    held_operands.k = held.k;
    held_operands.v = held.v;
    own.flat.zero_();
    sums.dk = own.k;
    sums.dv = own.v;
    attend_backward(context.backend, plans[static_cast<std::size_t>(step)], held_operands, backward, sums);
    if (gradients) {
      gradients->wait();
      add_gradients(own, arriving);
    }
    if (ring.size > 1) {
      std::swap(own, leaving);
      gradients = group->exchange(leaving.flat, ring.next(), arriving.flat, ring.previous(),
                                  fmt::format("p2p backward step {} gradients", step));
    }
    if (exchange) {
      if (CP_MUTATE(p2p_backward_wait_skipped, true, false)) exchange->wait();
      std::swap(held, inbox);
    }
  }
  if (gradients) {
    if (CP_MUTATE(dkv_wait_skipped, true, false)) gradients->wait();
    sums.dk = arriving.k;
    sums.dv = arriving.v;
  }
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
