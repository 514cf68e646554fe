// Runs a plan of tiles on a backend and adds it to a running result.
#pragma once

#include "cp_core/attention/backend.h"

namespace cp_pool {

// Attention over the keys seen so far. Rows that saw none, padding among them: out 0, lse -inf.
struct AttentionSums {
  // [q tokens, heads, head_dim_v], fp32, or of q's dtype: what one call gave, or that merged once with another.
  at::Tensor out;
  at::Tensor lse;        // fp32 [heads, q tokens]
  at::Tensor max_logit;  // fp32 [heads], -inf where no score was seen; undefined if not asked for
  bool empty = false;    // no key has been seen, and out and lse hold anything: attend fills or overwrites them
};

// No key seen yet, and no memory written.
AttentionSums make_empty_sums(const AttentionOperands& operands, bool max_logit);
// Fills out and lse if nothing has been added.
void fill_if_empty(AttentionSums& sums);

// Makes out fp32. A merge reads what it merges in fp32, and rounds to the dtype of out: only the last may leave fewer
// bits.
void widen(AttentionSums& sums);

// What comes after a plan: nothing else is merged into the sums, so that they may be rounded to q's dtype at once; or
// more.
enum class Then { nothing, more };

void attend(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands, AttentionSums& sums,
            Then then = Then::more);

void attend_backward(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands,
                     const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums);

}  // namespace cp_pool
