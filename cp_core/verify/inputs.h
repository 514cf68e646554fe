// The inputs of a problem, the same on every rank and machine.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/verify/canonical.h"

namespace cp_pool::verify {

// Tensors in canonical order (canonical.h) and the dtype of the problem.
struct CanonicalInputs {
  at::Tensor q;     // [tokens_q, heads, head_dim_qk]
  at::Tensor k;     // [tokens_kv, kv_heads, head_dim_qk]
  at::Tensor v;     // [tokens_kv, kv_heads, head_dim_v]
  at::Tensor dout;  // [tokens_q, heads, head_dim_v]; undefined unless training
  at::Tensor bias;  // as bias_extents; undefined if there is none
  at::Tensor sink;  // fp32 [heads], 0 for softmax off_by_one; undefined for vanilla
};

// Each value is a function of (seed, tensor, index) alone: nearly normal (a sum of four uniform numbers), mean 0,
// standard deviation 1, made in integer arithmetic; those of q and k times input_scale; rounded to the dtype.
CanonicalInputs make_inputs(const CanonicalProblem& problem, const at::Device& device = at::kCPU);

}  // namespace cp_pool::verify
