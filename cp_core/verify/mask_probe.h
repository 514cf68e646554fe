// A probe that shows which keys each query sees, exactly, in any dtype. With q = 0 every visible key weighs the same:
// exp(lse) is their count, and with a code of random +-1 elements as each key's V, out * count is the sum of their
// codes: one key more, less or other moves it by about 1 in every element. The backward is probed the same way: with
// dout = count * code of the query, dV of a key is the sum of the codes of the queries that saw it.
//
// The main checks bound rounding errors, and in 16 bits one key among hundreds is as small as those.
#pragma once

#include "cp_core/verify/canonical.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/inputs.h"

namespace cp_pool::verify {

// The case reduced to its mask: with so many heads and key-value heads, a vanilla softmax, no bias.
Case mask_probe_case(const Case& c, std::int64_t heads);

struct MaskProbe {
  CanonicalInputs inputs;
  Expected expected;  // of out, lse and, if training, dv
};

// problem: that of a mask_probe_case.
MaskProbe make_mask_probe(const CanonicalProblem& problem, const at::Device& device = at::kCPU);

}  // namespace cp_pool::verify
