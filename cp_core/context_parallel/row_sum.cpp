#include "cp_core/context_parallel/row_sum.h"

#include <utility>

#include <ATen/ops/zeros.h>

#include "cp_core/attention/backend.h"
#include "cp_core/mutation.h"
#include "cp_core/thd/add_rows.h"
#include "cp_core/thd/copy_rows.h"

namespace cp_pool {
namespace {

#ifdef CP_POOL_MUTANTS
std::vector<RowCopy> in_place(std::vector<RowCopy> rows) {
  for (RowCopy& range : rows) range.target = range.source;
  return rows;
}
#endif

}  // namespace

SomeRows all_rows(at::Tensor tensor) {
  const std::int64_t rows = tensor.size(0);
  return {.tensor = std::move(tensor), .rows = {{.source = 0, .target = 0, .count = rows}}};
}

at::Tensor RowSum::zeros(at::ScalarType dtype) const {
  return at::zeros(like_.sizes(), like_.options().dtype(dtype));
}

at::Tensor RowSum::whole() {
  if (empty()) return zeros(like_.scalar_type());
  if (!all_in_place(sum_.rows, like_.size(0))) {
    at::Tensor whole = zeros(sum_.tensor.scalar_type());
    copy_rows(sum_.tensor, whole, CP_MUTATE(some_rows_in_place, sum_.rows, in_place(sum_.rows)));
    sum_ = all_rows(std::move(whole));
  }
  return sum_.tensor;
}

at::Tensor RowSum::whole_fp32() {
  if (empty()) {
    sum_ = all_rows(zeros(at::kFloat));
  } else if (sum_.tensor.scalar_type() != at::kFloat) {
    if (all_in_place(sum_.rows, like_.size(0))) {
      sum_ = all_rows(sum_.tensor.to(at::kFloat));
    } else {
      at::Tensor whole = zeros(at::kFloat);
      add_rows(whole, sum_.tensor, CP_MUTATE(some_rows_in_place, sum_.rows, in_place(sum_.rows)));
      sum_ = all_rows(std::move(whole));
    }
  }
  return whole();
}

void RowSum::add(SomeRows part) {
  if (empty()) {
    sum_ = std::move(part);
    return;
  }
  at::Tensor sum = whole_fp32();
  add_rows(sum, part.tensor, CP_MUTATE(some_rows_in_place, part.rows, in_place(part.rows)));
}

void RowSum::add_last(const SomeRows& part) {
  if (empty()) return add(part);
  at::Tensor sum = whole();
  add_rows(sum, part.tensor, CP_MUTATE(some_rows_in_place, part.rows, in_place(part.rows)));
}

}  // namespace cp_pool
