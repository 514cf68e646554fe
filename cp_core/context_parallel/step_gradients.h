// The backward of one rank: a step with its own K and V and steps with other ranks' K and V, in any order.
#pragma once

#include <utility>

#include "cp_core/context_parallel/core.h"
#include "cp_core/context_parallel/row_sum.h"

namespace cp_pool {

// Contributions to dk and dv.
struct KeyGradients {
  SomeRows dk;
  SomeRows dv;
};

// dq and dbias are summed over all steps of the pass; each step returns its own dk and dv.
class StepGradients {
 public:
  // own_plan: the tiles of the rank's own K and V. head_groups: the number of groups of heads in which they are
  // computed, 1 or FastBackend::head_groups(). All references must outlive this.
  StepGradients(const Context& context, const TilePlan& own_plan, std::int64_t head_groups,
                const AttentionOperands& operands, const AttentionBackwardOperands& backward);

  // Computes the step with the rank's own K and V. It needs nothing from other ranks, so it can overlap the exchange of
  // K and V or the exchange of gradients. With several groups of heads only the first is computed here and the others
  // in finish_own(), so that the step overlaps both exchanges.
  void start_own();
  void finish_own();

  // Computes the tiles of this rank's queries with another rank's K and V.
  KeyGradients other_step(const TilePlan& plan, const at::Tensor& k, const at::Tensor& v);
  // Adds a contribution to dq that was computed elsewhere.
  void add_dq(SomeRows dq) { (own_is_sum_ ? dq_ : others_dq_).add(std::move(dq)); }

  // The results, valid after finish_own().
  RowSum own_dk();
  RowSum own_dv();
  at::Tensor dq();
  // fp32; undefined if the problem has no dbias. Steps computed elsewhere may add to it.
  [[nodiscard]] const at::Tensor& dbias() const { return dbias_; }

 private:
  void add_heads(std::int64_t group);
  KeyGradients step(const TilePlan& plan, const AttentionOperands& operands, RowSum& dq);
  KeyGradients called_step(const TilePlan& plan, const AttentionOperands& operands, RowSum& dq);
  KeyGradients summed_step(const TilePlan& plan, const AttentionOperands& operands, RowSum& dq);

  AttentionBackend& backend_;
  const TilePlan& own_plan_;
  std::int64_t head_groups_;
  const AttentionOperands& operands_;
  const AttentionBackwardOperands& backward_;
  PackedGradients own_;  // only with several groups of heads
  KeyGradients own_kv_;
  RowSum dq_;
  RowSum others_dq_;         // the other steps' contributions to dq, which are added to dq_ at the end
  bool own_is_sum_ = false;  // dq_ is an fp32 sum already, so the other steps are added to it at once
  at::Tensor dbias_;
};

}  // namespace cp_pool
