#include "cp_core/context_parallel/all_gather.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <fmt/format.h>

#include "cp_core/context_parallel/ring.h"
#include "cp_core/context_parallel/second_stream.h"
#include "cp_core/context_parallel/step_gradients.h"
#include "cp_core/cuda/cuda_part.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

// From the rows of all ranks, rank by rank, to whole sequences.
std::vector<RowCopy> to_sequence_order(const Context& context) {
  const std::vector<std::int64_t>& padded = context.problem.lengths.padded_kv;
  const int ranks = context.groups.cp->size();
  const std::vector<Run> whole = whole_runs(padded);
  return row_copies(CP_MUTATE(gathered_rows_not_reordered, gathered_runs(padded, ranks, 0, ranks), whole), whole);
}

at::Tensor empty_rows(const at::Tensor& like, std::int64_t rows) {
  return at::empty({rows, like.size(1), like.size(2)}, like.options());
}

// K and V on their way from all ranks.
class GatheredKeyValues {
 public:
  GatheredKeyValues(Communicator& cp, const AttentionOperands& operands, std::string_view pass)
      : k_(empty_rows(operands.k, cp.size() * operands.k.size(0))),
        v_(empty_rows(operands.v, cp.size() * operands.v.size(0))) {
#ifdef CP_POOL_MUTANTS
    // Memory used before may hold the very numbers that a skipped wait leaves out.
    k_.zero_();
    v_.zero_();
#endif
    k_work_ = cp.all_gather(k_, operands.k, fmt::format("all_gather {} K", pass));
    v_work_ = cp.all_gather(v_, operands.v, fmt::format("all_gather {} V", pass));
  }

  // Of the sizes of the operands that wait() gives.
  [[nodiscard]] AttentionOperands like(const AttentionOperands& operands) const {
    AttentionOperands whole = operands;
    whole.k = k_;
    whole.v = v_;
    return whole;
  }

  // The operands with K and V whole and in sequence order, but for this rank's own rows, which nothing reads.
  [[nodiscard]] AttentionOperands wait(const AttentionOperands& operands, const std::vector<RowCopy>& copies) {
    AttentionOperands whole = operands;
    whole.k = at::empty_like(k_);
    whole.v = at::empty_like(v_);
#ifdef CP_POOL_MUTANTS
    whole.k.zero_();
    whole.v.zero_();
#endif
    k_work_->wait();
    copy_rows(k_, whole.k, copies);
    if (CP_MUTATE(all_gather_wait_skipped, true, false)) v_work_->wait();
    copy_rows(v_, whole.v, copies);
    return whole;
  }

 private:
  at::Tensor k_;
  at::Tensor v_;
  Communicator::WorkPtr k_work_;
  Communicator::WorkPtr v_work_;
};

// Of these runs, what none of `taken` holds.
std::vector<Run> runs_without(const std::vector<Run>& runs, std::vector<Run> taken) {
  std::ranges::sort(taken, {}, [](const Run& run) { return std::pair(run.sequence, run.begin); });
  std::vector<Run> left;
  for (const Run& run : runs) {
    std::int64_t position = run.begin;
    const auto append_until = [&](std::int64_t end) {
      if (end > position) {
        left.push_back(
            {.sequence = run.sequence, .begin = position, .end = end, .row = run.row + position - run.begin});
      }
    };
    for (const Run& other : taken) {
      if (other.sequence != run.sequence) continue;
      append_until(other.begin);
      position = other.end;
    }
    append_until(run.end);
  }
  return left;
}

AllGatherPlans plans_of(const Context& context) {
  return all_gather_plans(context.problem, context.groups.cp->size(), context.groups.cp->rank());
}

// The rows that come from other ranks.
std::vector<RowCopy> of_others(const Communicator& cp, const std::vector<RowCopy>& copies,
                               std::int64_t rows_of_a_rank) {
  const std::int64_t begin = cp.rank() * rows_of_a_rank;
  std::vector<RowCopy> result;
  std::ranges::copy_if(copies, std::back_inserter(result), [&](const RowCopy& copy) {
    return copy.source < begin || copy.source >= begin + rows_of_a_rank;
  });
  return result;
}

// True if a step merges each row at most once.
bool merges_once(const Context& context, const TilePlan& plan, const AttentionOperands& operands) {
  return plan.empty() || (plan.size() == 1 && context.backend.parts(plan.front(), operands).size() == 1);
}

// The two steps, the second on a stream of its own, merged into what the own step gave. Each has its own rows of out
// and lse, but max_logit is of all rows.
void attend_steps(const Context& context, const AllGatherPlans& plans, const AttentionOperands& operands,
                  AttentionSums& sums) {
  const bool round = context.problem.softmax == SoftmaxType::vanilla && merges_once(context, plans[1], operands) &&
                     merges_once(context, plans[2], operands);
  // From here on both streams have the same tensors.
  fill_if_empty(sums);
  if (!round) widen(sums);
  AttentionSums second_sums = sums;
  if (sums.max_logit.defined()) second_sums.max_logit = sums.max_logit.clone();
  SecondStream second(operands.q.device());
  attend(context.backend, plans[1], operands, sums, Then::nothing);
  second.run([&] { attend(context.backend, plans[2], operands, second_sums, Then::nothing); });
  if (CP_MUTATE(max_logit_before_join, true, false)) second.join();
  if (sums.max_logit.defined()) sums.max_logit = at::maximum(sums.max_logit, second_sums.max_logit);
}

// The same of the backward. Both steps add to dk, dv and dbias: the second computes beside the first, but adds when the
// first has added. That takes no memory, where sums of its own would take as much again as all of K and V in fp32; and
// the order, and so the bits, are always the same. The sums are made behind the fork, beside the second step's kernels.
AttentionGradientSums attend_steps_backward(const Context& context, const AllGatherPlans& plans,
                                            const AttentionOperands& operands,
                                            const AttentionBackwardOperands& backward, const at::Tensor& dbias) {
  SecondStream second(operands.q.device());
  delay_point(operands.q.device());
  AttentionGradientSums sums = make_gradient_sums(operands, /*dbias=*/false);
  sums.dbias = dbias;
  attend_backward(context.backend, plans[1], operands, backward, sums);
  second.mark();
  AttentionGradientSums second_sums = sums;
  second_sums.turn = [&second] { second.wait_for_mark(); };
  second.run([&] { attend_backward(context.backend, plans[2], operands, backward, second_sums); });
  second.join();
  return sums;
}

// Sends each rank the sum of its part of a gradient over whole sequences.
struct ScatteredGradient {
  ScatteredGradient(Communicator& cp, const at::Tensor& whole, const std::vector<RowCopy>& copies,
                    std::string_view what)
      : by_rank(at::empty_like(whole)), own(empty_rows(whole, whole.size(0) / cp.size())) {
    const std::vector<RowCopy> as_is{{.source = 0, .target = 0, .count = whole.size(0)}};
    copy_rows_back(whole, by_rank, CP_MUTATE(reduce_scatter_slice, copies, as_is));
    work = cp.reduce_scatter(own, by_rank, what);
  }

  at::Tensor by_rank;
  at::Tensor own;
  Communicator::WorkPtr work;
};

}  // namespace

AllGatherPlans all_gather_plans(const AttentionProblem& problem, int ranks, int rank) {
  const std::vector<Run> own = local_runs(problem.lengths.padded_kv, ranks, rank);
  const std::vector<Run> others = runs_without(whole_runs(problem.lengths.padded_kv), own);
  const auto step = [&](int half) {
    return make_plan(problem, local_half_runs(problem.lengths.padded_q, ranks, rank, half), others);
  };
  return {make_plan(problem, local_runs(problem.lengths.padded_q, ranks, rank), own), step(0),
          step(CP_MUTATE(all_gather_step_repeated, 1, 0))};
}

void get_ready_for_all_gather(AttentionBackend& backend, const AllGatherPlans& plans, const AttentionOperands& own,
                              const AttentionOperands& whole, Pass pass) {
  backend.get_ready({plans.data(), 1}, own, pass);
  backend.get_ready({plans.data() + 1, 2}, whole, pass);
  const std::int64_t groups = pass == Pass::backward ? backend.head_groups(plans.front(), own) : 1;
  if (groups > 1) backend.get_ready({plans.data(), 1}, narrowed(own, 0, groups), pass);
}

PackedForward all_gather_forward(const Context& context, const PackedInputs& inputs) {
  Communicator& cp = *context.groups.cp;
  const AttentionOperands& own = inputs.operands;
  GatheredKeyValues gathered(cp, own, "forward");
  const AllGatherPlans plans = plans_of(context);
  get_ready_for_all_gather(context.backend, plans, own, gathered.like(own), Pass::forward);
  AttentionSums sums = make_empty_sums(own, context.problem.max_logit);
  attend(context.backend, plans[0], own, sums);
  const AttentionOperands operands = gathered.wait(own, of_others(cp, to_sequence_order(context), own.k.size(0)));
  attend_steps(context, plans, operands, sums);
  if (sums.max_logit.defined() && CP_MUTATE(max_logit_of_own_queries, true, false)) {
    cp.all_reduce(sums.max_logit, ReduceOp::max, "all_gather forward max_logit")->wait();
  }
  const std::vector<Run> q_runs = local_runs(context.problem.lengths.padded_q, cp.size(), cp.rank());
  return finish_forward(context.problem, q_runs, inputs.sink, operands.q.scalar_type(), std::move(sums));
}

PackedGradients all_gather_backward(const Context& context, const PackedInputs& inputs,
                                    const AttentionBackwardOperands& backward) {
  Communicator& cp = *context.groups.cp;
  const AttentionOperands& own = inputs.operands;
  GatheredKeyValues gathered(cp, own, "backward");
  const AllGatherPlans plans = plans_of(context);
  const std::vector<RowCopy> copies = to_sequence_order(context);
  get_ready_for_all_gather(context.backend, plans, own, gathered.like(own), Pass::backward);
  StepGradients gradients(context, plans[0], context.backend.head_groups(plans[0], own), own, backward);
  gradients.start_own();
  const AttentionOperands operands = gathered.wait(own, of_others(cp, copies, own.k.size(0)));
  AttentionGradientSums sums = attend_steps_backward(context, plans, operands, backward, gradients.dbias());
  const ScatteredGradient dk(cp, sums.dk, copies, "all_gather backward dK");
  const ScatteredGradient dv(cp, sums.dv, copies, "all_gather backward dV");
  gradients.finish_own();
  gradients.add_dq(all_rows(sums.dq));
  RowSum own_dk = gradients.own_dk();
  RowSum own_dv = gradients.own_dv();
  dk.work->wait();
  own_dk.add_last(all_rows(dk.own));
  dv.work->wait();
  own_dv.add_last(all_rows(dv.own));
  sums.dq = gradients.dq();
  sums.dk = own_dk.whole();
  sums.dv = own_dv.whole();
  return finish_backward(own, sums);
}

}  // namespace cp_pool
