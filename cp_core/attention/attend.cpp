#include "cp_core/attention/attend.h"

#include <limits>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/merge_partial.h"

namespace cp_pool {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

std::vector<RowRange> query_rows(const TileGroup& group) {
  std::vector<RowRange> rows;
  rows.reserve(group.tiles.size());
  for (const Tile& tile : group.tiles) rows.push_back({.row = tile.q_row, .count = tile.m});
  return rows;
}

}  // namespace

AttentionSums make_sums(const AttentionOperands& operands, bool max_logit) {
  AttentionSums sums = make_empty_sums(operands, max_logit);
  fill_if_empty(sums);
  return sums;
}

void fill_if_empty(AttentionSums& sums) {
  if (!sums.empty) return;
  sums.out.fill_(CP_MUTATE(untouched_out_not_zero, 0.0, 1.0));
  sums.lse.fill_(CP_MUTATE(untouched_lse_not_empty, kMinusInfinity, 0.0));
  sums.empty = false;
}

AttentionSums make_empty_sums(const AttentionOperands& operands, bool max_logit) {
  const auto options = operands.q.options().dtype(at::kFloat);
  const std::int64_t tokens = operands.q.size(0);
  const std::int64_t heads = operands.q.size(1);
  AttentionSums sums;
  sums.out = at::empty({tokens, heads, operands.v.size(2)}, options);
  sums.lse = at::empty({heads, tokens}, options);
  sums.empty = true;
  if (max_logit) sums.max_logit = at::full({heads}, CP_MUTATE(max_logit_from_zero, kMinusInfinity, 0.0), options);
  return sums;
}

AttentionGradientSums make_gradient_sums(const AttentionOperands& operands, bool dbias) {
  const auto options = operands.q.options().dtype(at::kFloat);
  AttentionGradientSums sums;
  sums.dq = at::zeros(operands.q.sizes(), options);
  sums.dk = at::zeros(operands.k.sizes(), options);
  sums.dv = at::zeros(operands.v.sizes(), options);
  if (dbias) sums.dbias = at::zeros(operands.bias.sizes(), options);
  return sums;
}

void attend(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands, AttentionSums& sums) {
  AttentionPartial partial{.out = {}, .lse = {}, .max_logit = sums.max_logit};
  for (const TileGroup& group : plan) {
    for (const TileGroup& part : backend.parts(group, operands)) {
      // The first part is the result so far if it has every row: each of them sees a key of its tile.
      if (sums.empty && covers_queries(part.tiles, sums.out.size(0))) {
        AttentionPartial first{.out = sums.out, .lse = sums.lse, .max_logit = partial.max_logit};
        delay_point(operands.q.device());
        backend.forward(part, operands, first);
        delay_point(operands.q.device());
        partial.max_logit = first.max_logit;
        sums.empty = false;
        continue;
      }
      fill_if_empty(sums);
      if (!partial.out.defined()) {
        partial.out = at::empty_like(sums.out);
        partial.lse = at::empty_like(sums.lse);
      }
      delay_point(operands.q.device());
      backend.forward(part, operands, partial);
      delay_point(operands.q.device());
      merge_partial(sums.out, sums.lse, partial.out, partial.lse, query_rows(part));
      if (CP_MUTATE(merge_rounded_each_part, false, true)) sums.out.copy_(sums.out.to(at::kBFloat16));
    }
  }
  sums.max_logit = partial.max_logit;
}

void attend_backward(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands,
                     const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums) {
  for (const TileGroup& group : plan) {
    for (const TileGroup& part : backend.parts(group, operands)) {
      if (!backend.takes_empty_sums()) sums.fill();
      delay_point(operands.q.device());
      backend.backward(part, operands, backward_operands, sums);
    }
  }
}

}  // namespace cp_pool
