// The expected results: a reference value and an error bound for each row. A row is the vector of one (token, head);
// its error is the root mean square over the elements.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/verify/canonical.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::verify {

// How many times the baseline's own error a row may have, in addition to the floor.
inline constexpr double kAllowedBaselines = 2;

// The elements of a row that are judged together. With a score_offset, those of the last dimension of q and k, and of
// their gradients, are far larger than the others and would hide errors in them.
enum class RowPart { whole, all_but_last, last };
// Returns a view of the part of each row: [.., dim] -> [.., dim of the part].
at::Tensor row_part(const at::Tensor& elements, RowPart part);

struct ExpectedTensor {
  std::string_view name;
  RowPart part = RowPart::whole;  // of `value`, which has whole rows
  at::Tensor value;               // fp64 [tokens, heads, dim], canonical order
  at::Tensor baseline_error;      // fp64 [tokens, heads]; of the part, as `bound`
  at::Tensor bound;               // fp64 [tokens, heads]: kAllowedBaselines * baseline_error + c * u * magnitude
  double ceiling_asked = 0;       // the ceiling; applies only if `rounding` is well below it; 0 = none
  double rounding = 0;            // the baseline's largest |error| / (1 + |value|); 0 without ceiling_asked
  // bool, shaped like value: true for elements to which nothing contributes, which must be exactly 0. Undefined unless
  // rows have both such elements and others (dbias).
  at::Tensor untouched;

  // A fixed tolerance in addition to the bounds: |error| <= ceiling * (1 + |value|) for each element. 0 = none, since
  // rounding may reach it, or there are too few elements to tell.
  [[nodiscard]] double ceiling() const;
};

struct Expected {
  // out, lse, max_logit; if training, also dq, dk, dv, and dsink and dbias if they exist. With a score_offset, "dq" and
  // "dk" are without their last dimension, which "offset dq" and "offset dk" have.
  std::vector<ExpectedTensor> tensors;

  [[nodiscard]] const ExpectedTensor& tensor(std::string_view name) const;  // throws std::out_of_range
  [[nodiscard]] std::size_t bytes() const;
};

// Returns the root mean square of each row: [.., dim] -> [..].
at::Tensor row_rms(const at::Tensor& elements);

// The tolerance of Transformer Engine's context-parallel tests, both absolute and relative.
double fixed_tolerance(const CanonicalProblem& problem);

// sum_shares: if the problem is a share of another's heads, sums a tensor over the shares. The ceilings are then those
// of the share only.
Expected compute_expected(const CanonicalProblem& problem, const CanonicalInputs& inputs,
                          const SumShares& sum_shares = {});

}  // namespace cp_pool::verify
