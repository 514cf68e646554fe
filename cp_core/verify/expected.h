// The expected results: for each row its reference value and its error bound. A row is one (token, head) vector; its
// error is the root mean square over the vector's elements.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/verify/canonical.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::verify {

// How many times the baseline's own error a row may have, beside the floor.
inline constexpr double kAllowedBaselines = 2;

struct ExpectedTensor {
  std::string_view name;
  at::Tensor value;           // fp64 [tokens, heads, dim], canonical order
  at::Tensor baseline_error;  // fp64 [tokens, heads]
  at::Tensor bound;           // fp64 [tokens, heads]: kAllowedBaselines * baseline_error + c * u * magnitude
  double ceiling_asked = 0;   // the ceiling, which holds only if `rounding` stays well below it
  double rounding = 0;        // the baseline's largest |error| / (1 + |value|); 0 where there is no ceiling_asked
  // bool, shaped like value: elements to which nothing contributes, which must be exactly 0. Undefined unless rows mix
  // such elements with others (dbias).
  at::Tensor untouched;

  // A fixed tolerance on top: |error| <= ceiling * (1 + |value|) for each element. 0 = none: rounding may reach it, or
  // the elements are too few to tell.
  [[nodiscard]] double ceiling() const;
};

struct Expected {
  std::vector<ExpectedTensor> tensors;  // out, lse, max_logit; if training, dq, dk, dv and what else has a gradient

  [[nodiscard]] const ExpectedTensor& tensor(std::string_view name) const;  // throws std::out_of_range
  [[nodiscard]] std::size_t bytes() const;
};

// [.., dim] -> [..]: the root mean square of each row.
at::Tensor row_rms(const at::Tensor& elements);

// The tolerances of Transformer Engine's context-parallel tests, absolute and relative at once.
double fixed_tolerance(const CanonicalProblem& problem);

// sum_shares: if the problem is a share of another's heads, sums a tensor over the shares. Ceilings are then those of
// the share.
Expected compute_expected(const CanonicalProblem& problem, const CanonicalInputs& inputs,
                          const SumShares& sum_shares = {});

}  // namespace cp_pool::verify
