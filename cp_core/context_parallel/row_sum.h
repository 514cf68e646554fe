// Adds up contributions to the rows of a packed tensor.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"
#include "cp_core/thd/sum_rows.h"

namespace cp_pool {

// Returns the tensor as a contribution to all rows.
SomeRows all_rows(at::Tensor tensor);

// The sum of contributions to a packed tensor. A contribution is fp32, or 16-bit as its kernel rounded it. A few 16-bit
// contributions are kept unsummed and added together in fp32, in arrival order. The sum of several contributions is
// fp32, and is rounded at most once, at the end. A single contribution is never converted.
class RowSum {
 public:
  // like: a tensor with the sizes, dtype and device of the packed tensor; its values are not read.
  explicit RowSum(at::Tensor like) : like_(std::move(like)) {}

  // Adds a contribution after all earlier ones. The tensor then belongs to the sum, which may read it later and write
  // to it.
  void add(SomeRows part);
  // Adds the last contributions at once, in order. If all contributions have one 16-bit dtype, the sum may be rounded
  // to it. Nothing may be added afterwards.
  void add_last(std::vector<SomeRows> parts);
  void add_last(const SomeRows& part) { add_last(std::vector{part}); }

  // Returns the contributions in order, all of one dtype, and empties the sum. There may be fewer than were added,
  // because contributions are added up if their dtypes differ or if keeping them would take more memory than an fp32
  // sum.
  std::vector<SomeRows> take();

  [[nodiscard]] bool empty() const { return !sum_.tensor.defined(); }
  // Returns the sum so far: a single contribution as it was added, or the fp32 sum of several with all rows.
  const SomeRows& rows();
  // Returns the sum with all rows, in fp32 or in the dtype of a single contribution. Without contributions, returns
  // zeros of the dtype of `like`.
  at::Tensor whole();
  // Returns the sum with all rows, in fp32. Later additions write to the same tensor.
  at::Tensor whole_fp32();

 private:
  [[nodiscard]] at::Tensor empty_whole(at::ScalarType dtype) const;
  [[nodiscard]] bool is_whole() const;
  // Sets the sum to that of these contributions, which have one dtype, with all rows and rounded to `dtype`.
  void start(std::span<const SomeRows> parts, at::ScalarType dtype);
  [[nodiscard]] bool keeps_too_much() const;

  at::Tensor like_;
  SomeRows sum_;
  std::vector<SomeRows> kept_;  // contributions that have not been added to sum_ yet
};

}  // namespace cp_pool
