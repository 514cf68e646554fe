// Runs a plan of tiles on a backend and adds it to a running result.
#pragma once

#include "cp_core/attention/backend.h"

namespace cp_pool {

// Attention over the keys seen so far. Rows that saw none, padding among them: out 0, lse -inf.
struct AttentionSums {
  // [q tokens, heads, head_dim_v]: fp32; or q's dtype if it is the result of one call, or of two merged once.
  at::Tensor out;
  at::Tensor lse;        // fp32 [heads, q tokens]
  at::Tensor max_logit;  // fp32 [heads], -inf where no score was seen; undefined if not asked for
  bool empty = false;    // no key has been seen, and out and lse are uninitialised: attend fills or overwrites them
};

// Sums without keys, whose memory is uninitialised.
AttentionSums make_empty_sums(const AttentionOperands& operands, bool max_logit);
// Fills out and lse if nothing has been added.
void fill_if_empty(AttentionSums& sums);

// Makes out fp32. A merge computes in fp32 and rounds to the dtype of out, so out must be fp32 before any merge but the
// last.
void widen(AttentionSums& sums);

// Whether more is merged into the sums after a plan. If nothing is, they may be rounded to q's dtype at once.
enum class Then { nothing, more };

void attend(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands, AttentionSums& sums,
            Then then = Then::more);

void attend_backward(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands,
                     const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums);

}  // namespace cp_pool
