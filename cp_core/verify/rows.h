// The rows of the whole problem that a rank holds. Shards are made and results are judged by them. Nothing here or in
// conventions.h may use partition.h or layout.h, or else their faults would cancel out.
//
// The packed order of a rank is the order of its rows. In layout thd a shard is in packed order. In bshd it is the same
// rows viewed as [batch, S/n]; sbhd is that transposed.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::verify {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class ShapeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class RankRows {
 public:
  // rows: in packed order. batch: the number of sequences. device: the device of all tensors passed to the methods.
  RankRows(Layout layout, std::int64_t batch, std::vector<LocalRow> rows, PaddingFill fill,
           const at::Device& device = at::kCPU);
  // The rows of the dual-chunk convention, with NaN in padding. valid, padded: one length per sequence.
  RankRows(Layout layout, int rank, int size, const std::vector<std::int64_t>& valid,
           const std::vector<std::int64_t>& padded, const at::Device& device = at::kCPU);

  // Returns rows that are the same on every rank: positions 0 .. padded - 1 of one sequence.
  static RankRows replicated(std::int64_t valid, std::int64_t padded, PaddingFill fill = PaddingFill::nan,
                             const at::Device& device = at::kCPU);

  [[nodiscard]] const std::vector<LocalRow>& rows() const { return rows_; }  // packed order, padding included
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }

  // int64 on the device: the indices in packed order of valid rows and of padding rows, and the canonical row of each
  // valid row.
  [[nodiscard]] const at::Tensor& valid_rows() const { return valid_rows_; }
  [[nodiscard]] const at::Tensor& padding_rows() const { return padding_rows_; }
  [[nodiscard]] const at::Tensor& canonical_rows() const { return canonical_rows_; }

  [[nodiscard]] PaddingFill fill() const { return fill_; }

  // Returns the rank's shard of a canonical tensor [tokens, heads, dim] in the case's layout; padding rows hold `fill`,
  // by default fill().
  [[nodiscard]] at::Tensor shard(const at::Tensor& canonical) const { return shard(canonical, fill_); }
  [[nodiscard]] at::Tensor shard(const at::Tensor& canonical, PaddingFill fill) const;
  // Whether the tensor is defined and has the shape of a shard, with any number of heads and any dim.
  [[nodiscard]] bool fits(const at::Tensor& shard) const;
  // Returns the shard in packed order, [count(), heads, dim]. Throws ShapeError unless fits(shard).
  [[nodiscard]] at::Tensor packed(const at::Tensor& shard) const;

 private:
  Layout layout_;
  std::int64_t batch_;
  std::vector<LocalRow> rows_;
  PaddingFill fill_;
  at::Tensor valid_rows_;
  at::Tensor padding_rows_;
  at::Tensor canonical_rows_;
};

}  // namespace cp_pool::verify
