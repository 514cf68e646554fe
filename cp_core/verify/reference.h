// Computes the correct results in fp64 from the definition (docs/definitions.md). Uses nothing of the context-parallel
// library.
#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

#include "cp_core/verify/canonical.h"
#include "cp_core/verify/inputs.h"

namespace cp_pool::verify {

// The results of a problem in canonical order. Gradients are undefined unless training.
struct Results {
  at::Tensor out;        // [tokens_q, heads, head_dim_v]
  at::Tensor lse;        // [tokens_q, heads, 1]; -inf for rows that see no key
  at::Tensor dq;         // [tokens_q, heads, head_dim_qk]
  at::Tensor dk;         // [tokens_kv, kv_heads, head_dim_qk]
  at::Tensor dv;         // [tokens_kv, kv_heads, head_dim_v]
  at::Tensor max_logit;  // [1, heads, 1]; -inf for heads without a visible score
  at::Tensor dbias;      // shaped like the bias; undefined if it has no gradient
  at::Tensor dsink;      // [1, heads, 1]; undefined unless the softmax is learnable
  // A rank's only: lse over the keys that it holds, without a sink. It is compared with the reference, and not
  // repeated.
  at::Tensor part_lse = {};
  // A rank's only, of a case in FP8: fp32 [2, 4], the largest magnitudes and the scales of q, k, v and dout that the
  // implementation tells; NaN where it tells none.
  at::Tensor fp8_scales = {};
};

// The results, with the names that they have in checks.
inline constexpr std::array<std::pair<std::string_view, at::Tensor Results::*>, 8> kResults{
    {{"out", &Results::out},
     {"lse", &Results::lse},
     {"max_logit", &Results::max_logit},
     {"dq", &Results::dq},
     {"dk", &Results::dk},
     {"dv", &Results::dv},
     {"dbias", &Results::dbias},
     {"dsink", &Results::dsink}}};

// Returns the results of rows that see no key: out and gradients are 0, lse and max_logit -inf.
Results empty_results(const CanonicalProblem& problem, const at::TensorOptions& options);

// Converts a bias, its gradient or a shard of either from [b, h, rows, columns] to the form of the other results,
// [rows, b * h, columns].
at::Tensor bias_by_row(const at::Tensor& bias);

// Sums a tensor in place over the shares of all ranks.
using SumShares = std::function<void(at::Tensor&)>;

struct Reference {
  Results value;  // fp64
  // fp32: the same sums over absolute values, which are the scale of each element's rounding error. If inputs are fp32
  // or scores are large, they include the rounding of the scores. For lse and max_logit: 1 + |value|, plus the rounding
  // of the scores. In FP8: the roots of the sums over squares, with the rounding of the scores.
  Results magnitude;
};

Reference compute_reference(const CanonicalProblem& problem, const CanonicalInputs& inputs);

}  // namespace cp_pool::verify
