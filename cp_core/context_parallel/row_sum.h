// Contributions to the rows of a packed tensor, added up.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"

namespace cp_pool {

// Some rows of a packed tensor: row `source` of `tensor` is row `target` there, others are 0. fp32, or rounded by the
// kernel that made them.
struct SomeRows {
  at::Tensor tensor;
  std::vector<RowCopy> rows;
};

SomeRows all_rows(at::Tensor tensor);

// The sum is rounded once. What came first is kept as it came: rounded by a kernel, it loses nothing by that. From the
// second on the sum is fp32; the last may be rounded to the dtype of what is kept, if that is the only one before.
class RowSum {
 public:
  // like: the packed tensor; only its sizes, dtype and device are read.
  explicit RowSum(at::Tensor like) : like_(std::move(like)) {}

  // Takes the tensor over: it may become the sum.
  void add(SomeRows part);
  // Of all contributions: no other may come after.
  void add_last(const SomeRows& part);

  [[nodiscard]] bool empty() const { return !sum_.tensor.defined(); }
  // The sum so far, as it is.
  [[nodiscard]] const SomeRows& rows() const { return sum_; }
  // With all rows: fp32, or what came as the only one. zeros of the dtype of `like` if nothing came.
  at::Tensor whole();
  // The same in fp32.
  at::Tensor whole_fp32();

 private:
  [[nodiscard]] at::Tensor zeros(at::ScalarType dtype) const;

  at::Tensor like_;
  SomeRows sum_;
};

}  // namespace cp_pool
