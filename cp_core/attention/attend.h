// Runs a plan of tiles on a backend and merges the results into a running result.
#pragma once

#include "cp_core/attention/backend.h"

namespace cp_pool {

// Attention over the keys seen so far. Rows that have seen no key, padding included, have out 0 and lse -inf.
// out has q's dtype if it is the result of one kernel call, or of a last merge. max_logit is -inf where no score was
// seen.
struct AttentionSums : AttentionPartial {
  bool empty = false;  // no key has been seen, and out and lse are uninitialised; attend fills or overwrites them
};

// Returns empty sums; max_logit is filled with -inf if it is asked for.
AttentionSums make_empty_sums(const AttentionOperands& operands, bool max_logit);
// Fills out with 0 and lse with -inf if the sums are empty.
void fill_if_empty(AttentionSums& sums);

// Converts out to fp32. A merge computes in fp32 and rounds to the dtype of out, so out must be fp32 before any merge
// but the last.
void widen(AttentionSums& sums);

// Whether more is merged into the sums after a plan. If nothing is, the plan's merge may round to q's dtype.
enum class Then { nothing, more };

// Computes the plan and merges it into the sums.
void attend(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands, AttentionSums& sums,
            Then then = Then::more);

// Computes the plan's gradients and adds them to the sums. Afterwards the sums are ready, even if the plan has no
// tiles.
void attend_backward(AttentionBackend& backend, const TilePlan& plan, const AttentionOperands& operands,
                     const AttentionBackwardOperands& backward_operands, PendingSums pending);

}  // namespace cp_pool
