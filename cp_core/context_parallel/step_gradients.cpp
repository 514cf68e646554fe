#include "cp_core/context_parallel/step_gradients.h"

#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "cp_core/cuda/device.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

RowSum sum_of(const at::Tensor& like, SomeRows own) {
  RowSum sum(like);
  if (CP_MUTATE(own_dkv_dropped, true, false)) sum.add(std::move(own));
  return sum;
}

}  // namespace

StepGradients::StepGradients(const Context& context, const TilePlan& own_plan, std::int64_t head_groups,
                             const AttentionOperands& operands, const AttentionBackwardOperands& backward)
    : backend_(context.backend),
      own_plan_(own_plan),
      head_groups_(head_groups),
      operands_(operands),
      backward_(backward),
      dq_(operands.q),
      others_dq_(operands.q) {
  if (has_dbias(context.problem)) {
    dbias_ = at::zeros(operands.bias.sizes(), operands.q.options().dtype(at::kFloat));
  }
}

void StepGradients::start_own() {
  if (head_groups_ == 1) {
    const bool joins = !others_dq_.empty() && !backend_.contributes_once(own_plan_, operands_);
    own_kv_ = step(own_plan_, operands_, joins ? others_dq_ : dq_);
    return;
  }
  own_ = {.dq = at::empty_like(operands_.q), .dk = at::empty_like(operands_.k), .dv = at::empty_like(operands_.v)};
  add_heads(0);
}

void StepGradients::finish_own() {
  if (head_groups_ == 1) return;
  for (std::int64_t group = 1; group < head_groups_; ++group) add_heads(group);
  dq_.add(all_rows(own_.dq));
  own_kv_ = {.dk = all_rows(own_.dk), .dv = all_rows(own_.dv)};
}

KeyGradients StepGradients::other_step(const TilePlan& plan, const at::Tensor& k, const at::Tensor& v) {
  AttentionOperands operands = operands_;
  operands.k = k;
  operands.v = v;
  return step(plan, operands, own_is_sum_ ? dq_ : others_dq_);
}

RowSum StepGradients::own_dk() {
  return sum_of(operands_.k, std::move(own_kv_.dk));
}

RowSum StepGradients::own_dv() {
  return sum_of(operands_.v, std::move(own_kv_.dv));
}

at::Tensor StepGradients::dq() {
  dq_.add_last(others_dq_.take());
  return dq_.whole();
}

void StepGradients::add_heads(std::int64_t group) {
  const HeadGroup written{.index = group, .count = head_groups_};
  const HeadGroup read{.index = CP_MUTATE(head_groups_repeated, group, 0), .count = head_groups_};
  delay_point(operands_.q.device());
  backend_.gradients_of_heads(
      own_plan_, narrowed(operands_, read), narrowed(backward_, read),
      {.dq = narrowed(own_.dq, 1, written), .dk = narrowed(own_.dk, 1, written), .dv = narrowed(own_.dv, 1, written)});
}

KeyGradients StepGradients::step(const TilePlan& plan, const AttentionOperands& operands, RowSum& dq) {
  return backend_.contributes_once(plan, operands) ? called_step(plan, operands, dq) : summed_step(plan, operands, dq);
}

KeyGradients StepGradients::called_step(const TilePlan& plan, const AttentionOperands& operands, RowSum& dq) {
  delay_point(operands.q.device());
  PackedGradients called = backend_.called_gradients(plan, operands, backward_);
  const std::span<const Tile> tiles = tiles_of(plan);
  dq.add({.tensor = std::move(called.dq), .rows = query_rows_of(tiles)});
  return {.dk = {.tensor = std::move(called.dk), .rows = key_rows_of(tiles)},
          .dv = {.tensor = std::move(called.dv), .rows = key_rows_of(tiles)}};
}

KeyGradients StepGradients::summed_step(const TilePlan& plan, const AttentionOperands& operands, RowSum& dq) {
  const auto options = operands.q.options().dtype(at::kFloat);
  const bool dq_empty = dq.empty();
  const PackedGradients sums{.dq = dq_empty ? at::empty(operands.q.sizes(), options) : dq.whole_fp32(),
                             .dk = at::empty(operands.k.sizes(), options),
                             .dv = at::empty(operands.v.sizes(), options),
                             .dbias = dbias_};
  attend_backward(backend_, plan, operands, backward_, {.sums = sums, .dq_empty = dq_empty, .dkv_empty = true});
  if (dq_empty) dq.add(all_rows(sums.dq));
  own_is_sum_ = own_is_sum_ || &dq == &dq_;
  return {.dk = all_rows(sums.dk), .dv = all_rows(sums.dv)};
}

}  // namespace cp_pool
