// A probe that shows exactly which keys each query sees, in any dtype. The main checks cannot, since in 16 bits the
// effect of one key among hundreds is as small as rounding errors.
//
// With q = 0, all visible keys have the same weight, and exp(lse) is their count. V of each key is a code of random +-1
// elements, so that out * count is the sum of the codes of the visible keys. One key more, less or exchanged changes
// every element by about 1. The backward is probed the same way: with dout = count * code of the query, dV of a key is
// the sum of the codes of the queries that saw it.
#pragma once

#include "cp_core/verify/canonical.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/inputs.h"

namespace cp_pool::verify {

// Returns the case reduced to its mask, with `heads` heads and key-value heads, a vanilla softmax and no bias.
Case mask_probe_case(const Case& c, std::int64_t heads);

struct MaskProbe {
  CanonicalInputs inputs;
  Expected expected;  // of out, lse and, if training, dv
};

// problem: the canonical problem of a mask_probe_case.
MaskProbe make_mask_probe(const CanonicalProblem& problem, const at::Device& device = at::kCPU);

// For a case in FP8: the case's own q and k, and V = 1, so that out of a row is the sum of its weights: 1, less the
// weight of the sink. A row that loses weight where small probabilities underflow in FP8, while lse counts them, has
// less. expected: of the case. The step has no backward.
MaskProbe make_weight_probe(const CanonicalProblem& problem, const CanonicalInputs& inputs, const Expected& expected);

}  // namespace cp_pool::verify
