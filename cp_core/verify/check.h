// Compares the results of a rank with the reference.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "cases/case_report.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/rows.h"

namespace cp_pool::verify {

// What an implementation has declared of its results (sharding.h).
struct CheckRules {
  bool judges_padding = true;
  double bound_factor = 1;  // every bound, and the fixed tolerance, is so many times as wide
};

// actual: every row of the rank in packed order, padding included, [rows.count(), heads, dim]; rows: those of the side
// (q or kv) that the tensor belongs to. Checked in this order, the first fault gives the message:
//   shape; padding rows hold exactly 0 (lse: -inf), where rules.judges_padding; no NaN; infinities exactly where the
//   reference has them (only lse has, -inf); every row's error within its bound; every element within the fixed
//   tolerance; elements to which nothing contributes exactly 0.
// The figures are filled in whatever the outcome; they are NaN if values are. An error beyond its bound says how many
// times the baseline's own error the worst row needs, and how many it is allowed.
Check check_tensor(const ExpectedTensor& expected, const RankRows& rows, const at::Tensor& actual,
                   const CheckRules& rules = {});

// The check of a result that cannot be measured, as one of the wrong shape: its figures are NaN.
Check failed_check(std::string_view tensor, const std::string& message);

}  // namespace cp_pool::verify
