// Which rows of the whole problem a rank holds, and in which order: the definition that results are judged by. Written
// from docs/definitions.md alone; it must not use partition.h or layout.h, whose faults would otherwise cancel out.
//
// A sequence of padded length P is cut in 2n chunks of P / 2n positions; rank r holds chunk r, then chunk 2n-1-r.
// Packed order of a rank: sequence by sequence, its positions in that order. The shard of layout thd is in packed
// order; bshd is the same as [batch, S/n]; sbhd is that transposed.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cases/case.h"

namespace cp_pool::verify {

// Fills padding rows.
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class ShapeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct LocalRow {
  std::int64_t sequence;
  std::int64_t position;   // in the sequence
  std::int64_t canonical;  // row of the canonical tensors; -1 = padding
};

class RankRows {
 public:
  // valid, padded: one length for each sequence. device: that of the tensors given to the methods.
  RankRows(Layout layout, int rank, int size, const std::vector<std::int64_t>& valid,
           const std::vector<std::int64_t>& padded, const at::Device& device = at::kCPU);

  // Rows that every rank holds alike: positions 0 .. padded - 1 of one sequence.
  static RankRows replicated(std::int64_t valid, std::int64_t padded, const at::Device& device = at::kCPU);

  [[nodiscard]] const std::vector<LocalRow>& rows() const { return rows_; }  // packed order, padding included
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }

  // Indices, int64, on the device: rows in packed order that are valid or padding, and the canonical row of each valid
  // one.
  [[nodiscard]] const at::Tensor& valid_rows() const { return valid_rows_; }
  [[nodiscard]] const at::Tensor& padding_rows() const { return padding_rows_; }
  [[nodiscard]] const at::Tensor& canonical_rows() const { return canonical_rows_; }

  // The rank's shard of a canonical tensor [tokens, heads, dim], in the case's layout; padding is NaN.
  [[nodiscard]] at::Tensor shard(const at::Tensor& canonical) const;
  // Is this a defined tensor of the shape of a shard, whatever its heads and dim?
  [[nodiscard]] bool fits(const at::Tensor& shard) const;
  // Returns the shard in packed order, [count(), heads, dim]. Throws ShapeError unless fits(shard).
  [[nodiscard]] at::Tensor packed(const at::Tensor& shard) const;

 private:
  RankRows(Layout layout, std::int64_t batch) : layout_(layout), batch_(batch) {}
  void add(std::int64_t sequence, std::int64_t position, std::int64_t valid, std::int64_t sequence_start);
  void make_indices(const at::Device& device);

  Layout layout_;
  std::int64_t batch_;
  std::vector<LocalRow> rows_;
  at::Tensor valid_rows_;
  at::Tensor padding_rows_;
  at::Tensor canonical_rows_;
};

}  // namespace cp_pool::verify
