// Makes the inputs of a problem, the same on every rank and machine.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/verify/canonical.h"

namespace cp_pool::verify {

// Tensors in canonical order (canonical.h) and in the problem's dtype, unless stated otherwise.
struct CanonicalInputs {
  at::Tensor q;          // [tokens_q, heads, head_dim_qk]
  at::Tensor k;          // [tokens_kv, kv_heads, head_dim_qk]
  at::Tensor v;          // [tokens_kv, kv_heads, head_dim_v]
  at::Tensor dout;       // [tokens_q, heads, head_dim_v]; undefined unless training
  at::Tensor bias;       // shaped as bias_extents says; undefined if there is none
  at::Tensor sink;       // fp32 [heads], 0 for softmax off_by_one; undefined for vanilla
  at::Tensor held = {};  // bool [tokens_kv]: the keys that queries can see; undefined: all
};

// Each value is a function of (seed, tensor, index) alone. Values are nearly normal (a sum of four uniform numbers)
// with mean 0 and standard deviation 1, and are made in integer arithmetic. q and k are multiplied by input_scale. With
// a score_offset, the last dimension of every q holds a power of two, and that of every k what makes the product times
// the scale the offset; the two have about the same size. All are rounded to the dtype.
CanonicalInputs make_inputs(const CanonicalProblem& problem, const at::Device& device = at::kCPU);

}  // namespace cp_pool::verify
