// Compares the results of a rank with the reference.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "cases/case_report.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/rows.h"

namespace cp_pool::verify {

// What an implementation has declared about its results (sharding.h).
struct CheckRules {
  bool judges_padding = true;
  double bound_factor = 1;  // factor on every bound and on the fixed tolerance
  bool judges_bits = true;  // whether a result of fp16 may not consist of bf16 numbers
};

// Compares one result of a rank with what is expected. actual: [rows.count(), heads, dim], every row of the rank in
// packed order, padding included; rows: the rank's rows of the side (q or kv) that the tensor belongs to.
//
// The checks are, in this order:
//   - the shape;
//   - padding rows hold exactly 0 (lse: -inf), if rules.judges_padding;
//   - no value is NaN;
//   - infinities are exactly where the reference has them (-inf in lse and max_logit);
//   - the error of every row is within its bound;
//   - every element is within the fixed tolerance;
//   - elements to which nothing contributes are exactly 0;
//   - a result of fp16 has values that bf16 does not have, if the reference has, and if rules.judges_bits.
// The first fault gives the message. The figures are filled in whatever the outcome, and are NaN if values are. The
// message of an error beyond its bound says how many times the baseline's own error the worst row needs, and how many
// are allowed.
Check check_tensor(const ExpectedTensor& expected, const RankRows& rows, const at::Tensor& actual,
                   const CheckRules& rules = {});

// Returns a failed check of a result that cannot be measured, such as one of a wrong shape. Its figures are NaN.
Check failed_check(std::string_view tensor, const std::string& message);

}  // namespace cp_pool::verify
