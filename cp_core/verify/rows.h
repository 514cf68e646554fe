// The rows of the whole problem that a rank holds, as shards are made and results judged by them. Nothing here or in
// conventions.h may use partition.h or layout.h, whose faults would otherwise cancel out.
//
// Packed order of a rank: the order of its rows. The shard of layout thd is in packed order; bshd is the same as
// [batch, S/n]; sbhd is that transposed.
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
  // rows: in packed order. batch: the number of sequences. device: that of the tensors given to the methods.
  RankRows(Layout layout, std::int64_t batch, std::vector<LocalRow> rows, PaddingFill fill,
           const at::Device& device = at::kCPU);
  // Those of the dual-chunk convention, with padding of NaN. valid, padded: one length for each sequence.
  RankRows(Layout layout, int rank, int size, const std::vector<std::int64_t>& valid,
           const std::vector<std::int64_t>& padded, const at::Device& device = at::kCPU);

  // Rows that every rank holds alike: positions 0 .. padded - 1 of one sequence.
  static RankRows replicated(std::int64_t valid, std::int64_t padded, PaddingFill fill = PaddingFill::nan,
                             const at::Device& device = at::kCPU);

  [[nodiscard]] const std::vector<LocalRow>& rows() const { return rows_; }  // packed order, padding included
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }

  // Indices, int64, on the device: rows in packed order that are valid or padding, and the canonical row of each valid
  // one.
  [[nodiscard]] const at::Tensor& valid_rows() const { return valid_rows_; }
  [[nodiscard]] const at::Tensor& padding_rows() const { return padding_rows_; }
  [[nodiscard]] const at::Tensor& canonical_rows() const { return canonical_rows_; }

  [[nodiscard]] PaddingFill fill() const { return fill_; }

  // The rank's shard of a canonical tensor [tokens, heads, dim], in the case's layout; padding rows hold fill().
  [[nodiscard]] at::Tensor shard(const at::Tensor& canonical) const { return shard(canonical, fill_); }
  [[nodiscard]] at::Tensor shard(const at::Tensor& canonical, PaddingFill fill) const;
  // Is this a defined tensor of the shape of a shard, whatever its heads and dim?
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
