// The answers, in fp64, from the definition (docs/numerics.md). Uses nothing of the context-parallel library.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/verify/canonical.h"
#include "cp_core/verify/inputs.h"

namespace cp_pool::verify {

// What a problem asks for, in canonical order. Gradients are undefined unless training.
struct Results {
  at::Tensor out;  // [tokens_q, heads, head_dim_v]
  at::Tensor lse;  // [tokens_q, heads, 1]; -inf for rows that see no key
  at::Tensor dq;   // [tokens_q, heads, head_dim_qk]
  at::Tensor dk;   // [tokens_kv, kv_heads, head_dim_qk]
  at::Tensor dv;   // [tokens_kv, kv_heads, head_dim_v]
};

struct Reference {
  Results value;  // fp64
  // fp32: the same sums over absolute values, the scale of the rounding errors of each element. lse: 1 + |lse|.
  Results magnitude;
};

Reference compute_reference(const CanonicalProblem& problem, const CanonicalInputs& inputs);

}  // namespace cp_pool::verify
