// Contributions to the rows of a packed tensor, added up.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"
#include "cp_core/thd/sum_rows.h"

namespace cp_pool {

SomeRows all_rows(at::Tensor tensor);

// The sum is rounded once. Contributions are fp32, or rounded by the kernel that made them: 16-bit ones lose nothing by
// waiting as they are for others, to be added at once in the order of their coming. The sum of several is fp32; at the
// end it may be rounded to the dtype of the first, if that is the only one that has been added to.
class RowSum {
 public:
  // like: the packed tensor; only its sizes, dtype and device are read.
  explicit RowSum(at::Tensor like) : like_(std::move(like)) {}

  // Takes the tensor over: it may become the sum, and is read later.
  void add(SomeRows part);
  // The last of all contributions, in order: no other may come after. Added at once.
  void add_last(std::vector<SomeRows> parts);
  void add_last(const SomeRows& part) { add_last(std::vector{part}); }

  // What has come, in order, of one dtype: added up as far as that takes, or memory. The sum is empty then.
  std::vector<SomeRows> take();

  [[nodiscard]] bool empty() const { return !sum_.tensor.defined(); }
  // The sum so far, as it is: what came as the only one, or all rows.
  const SomeRows& rows();
  // With all rows: fp32, or what came as the only one. zeros of the dtype of `like` if nothing came.
  at::Tensor whole();
  // The same in fp32.
  at::Tensor whole_fp32();

 private:
  [[nodiscard]] at::Tensor empty_whole(at::ScalarType dtype) const;
  [[nodiscard]] bool is_whole() const;
  // The sum from nothing but these, which have one dtype.
  void start(std::span<const SomeRows> parts, at::ScalarType dtype);
  [[nodiscard]] bool keeps_too_much() const;

  at::Tensor like_;
  SomeRows sum_;
  std::vector<SomeRows> kept_;  // not added yet
};

}  // namespace cp_pool
