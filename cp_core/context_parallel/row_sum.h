// The sum of contributions to the rows of a packed tensor.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"
#include "cp_core/thd/sum_rows.h"

namespace cp_pool {

SomeRows all_rows(at::Tensor tensor);

// Contributions are fp32, or 16 bits as the kernel that made them rounded them. A few contributions of 16 bits are kept
// unsummed, which loses nothing, and are added together in fp32, in arrival order. A sum of several is fp32 and rounded
// at most once, at the end. A contribution that stays the only one is never converted.
class RowSum {
 public:
  // like: the packed tensor; only its sizes, dtype and device are read.
  explicit RowSum(at::Tensor like) : like_(std::move(like)) {}

  // Adds a contribution, which comes after all earlier ones. Takes the tensor over: it is read later, and may be
  // written.
  void add(SomeRows part);
  // Adds the last contributions, in order, at once. No other may be added after them.
  void add_last(std::vector<SomeRows> parts);
  void add_last(const SomeRows& part) { add_last(std::vector{part}); }

  // Returns the contributions in order, all of one dtype, and empties the sum. They may have been added up to fewer:
  // that happens where dtypes differ, or where keeping them would have taken more memory than an fp32 sum.
  std::vector<SomeRows> take();

  [[nodiscard]] bool empty() const { return !sum_.tensor.defined(); }
  // The sum so far: the only contribution with its own rows, or a sum with all rows.
  const SomeRows& rows();
  // The sum with all rows: fp32, or the dtype of the only contribution. Zeros of the dtype of `like` without any.
  at::Tensor whole();
  // The sum with all rows in fp32.
  at::Tensor whole_fp32();

 private:
  [[nodiscard]] at::Tensor empty_whole(at::ScalarType dtype) const;
  [[nodiscard]] bool is_whole() const;
  // Starts the sum with these contributions, which have one dtype.
  void start(std::span<const SomeRows> parts, at::ScalarType dtype);
  [[nodiscard]] bool keeps_too_much() const;

  at::Tensor like_;
  SomeRows sum_;
  std::vector<SomeRows> kept_;  // not added yet
};

}  // namespace cp_pool
