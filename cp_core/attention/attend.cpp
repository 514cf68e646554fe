#include "cp_core/attention/attend.h"

#include <limits>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/cuda/device.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/merge_partial.h"

namespace cp_pool {
namespace {

constexpr double kNothingSeen = -std::numeric_limits<double>::infinity();

}  // namespace

void fill_if_empty(AttentionSums& sums) {
  if (!sums.empty) return;
  sums.out.fill_(CP_MUTATE(untouched_out_not_zero, 0.0, 1.0));
  sums.lse.fill_(CP_MUTATE(untouched_lse_not_empty, kNothingSeen, 0.0));
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
  if (max_logit) sums.max_logit = at::full({heads}, CP_MUTATE(max_logit_from_zero, kNothingSeen, 0.0), options);
  return sums;
}

void widen(AttentionSums& sums) {
  if (sums.out.scalar_type() != at::kFloat) sums.out = sums.out.to(at::kFloat);
}

namespace {

class Attention {
 public:
  Attention(AttentionBackend& backend, const AttentionOperands& operands, AttentionSums& sums)
      : backend_(backend), operands_(operands), sums_(sums) {}

  void add(const TileGroup& part, Then then) {
    delay_point(operands_.q.device());
    if (!add_calls(part, then)) add_partial(part);
    if (CP_MUTATE(merge_rounded_each_part, false, true)) sums_.out.copy_(sums_.out.to(at::kBFloat16));
  }

 private:
  // Merges the rounded outputs of the backend's calls. Returns false, and does nothing, if the backend offers none for
  // this part, or if max_logit is asked for.
  bool add_calls(const TileGroup& part, Then then) {
    if (sums_.max_logit.defined()) return false;
    const std::vector<CalledForward> calls = backend_.forward_calls(part, operands_);
    delay_point(operands_.q.device());
    for (const CalledForward& call : calls) take(call, then);
    return !calls.empty();
  }

  void take(const CalledForward& call, Then then) {
    if (sums_.empty && all_in_place(call.rows, sums_.out.size(0))) {
      sums_.out = call.out;
      sums_.lse = call.lse;
      sums_.empty = false;
      return;
    }
    fill_if_empty(sums_);
    if (then == Then::more) widen(sums_);
    merge_partial(sums_.out, sums_.lse, call.out, call.lse, call.rows);
  }

  // Merges the part as the backend's fp32 result.
  void add_partial(const TileGroup& part) {
    widen(sums_);
    // A first part with every row is written straight into the sums: each row of a tile sees a key, so none is left
    // out.
    std::vector<RowCopy> rows = query_rows_of(part.tiles);
    if (sums_.empty && all_in_place(rows, sums_.out.size(0))) {
      backend_.forward(part, operands_, sums_);
      delay_point(operands_.q.device());
      sums_.empty = false;
      return;
    }
    fill_if_empty(sums_);
    if (!partial_.out.defined()) {
      partial_ = {.out = at::empty_like(sums_.out), .lse = at::empty_like(sums_.lse), .max_logit = sums_.max_logit};
    }
    backend_.forward(part, operands_, partial_);
    delay_point(operands_.q.device());
    for (RowCopy& range : rows) range.source = range.target;  // a partial result has packed rows
    merge_partial(sums_.out, sums_.lse, partial_.out, partial_.lse, rows);
  }

  AttentionBackend& backend_;
  const AttentionOperands& operands_;
  AttentionSums& sums_;
  AttentionPartial partial_;
};

}  // namespace

void attend(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands, AttentionSums& sums,
            Then then) {
  Attention attention(backend, operands, sums);
  for (const TileGroup& group : plan) {
    const std::vector<TileGroup> parts = backend.parts(group, operands);
    // A query row may be in several groups and parts, so only a single part is sure to be a row's last.
    const Then after_part = plan.size() == 1 && parts.size() == 1 ? then : Then::more;
    for (const TileGroup& part : parts) attention.add(part, after_part);
  }
}

void attend_backward(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands,
                     const AttentionBackwardOperands& backward_operands, PendingSums pending) {
  for (const TileGroup& group : plan) {
    for (const TileGroup& part : backend.parts(group, operands)) {
      delay_point(operands.q.device());
      backend.backward(part, operands, backward_operands, pending);
    }
  }
  pending.make_ready();
}

}  // namespace cp_pool
