#include "cp_core/verify/rows.h"

#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool::verify {
namespace {

at::Tensor index_tensor(const std::vector<std::int64_t>& values, const at::Device& device) {
  return at::tensor(values, at::kLong).to(device);
}

}  // namespace

RankRows::RankRows(Layout layout, int rank, int size, const std::vector<std::int64_t>& valid,
                   const std::vector<std::int64_t>& padded, const at::Device& device)
    : RankRows(layout, static_cast<std::int64_t>(valid.size())) {
  std::int64_t sequence_start = 0;  // canonical row of the sequence's first token
  for (std::int64_t b = 0; b < batch_; ++b) {
    const auto sequence = static_cast<std::size_t>(b);
    const std::int64_t chunk = padded[sequence] / (std::int64_t{2} * size);
    for (const int held : {rank, 2 * size - 1 - rank}) {
      for (std::int64_t position = held * chunk; position < (held + 1) * chunk; ++position) {
        add(b, position, valid[sequence], sequence_start);
      }
    }
    sequence_start += valid[sequence];
  }
  make_indices(device);
}

RankRows RankRows::replicated(std::int64_t valid, std::int64_t padded, const at::Device& device) {
  RankRows rows(Layout::thd, 1);
  for (std::int64_t position = 0; position < padded; ++position) rows.add(0, position, valid, 0);
  rows.make_indices(device);
  return rows;
}

void RankRows::add(std::int64_t sequence, std::int64_t position, std::int64_t valid, std::int64_t sequence_start) {
  const std::int64_t canonical = position < valid ? sequence_start + position : -1;
  rows_.push_back({.sequence = sequence, .position = position, .canonical = canonical});
}

void RankRows::make_indices(const at::Device& device) {
  std::vector<std::int64_t> valid_rows;
  std::vector<std::int64_t> padding_rows;
  std::vector<std::int64_t> canonical_rows;
  for (std::int64_t row = 0; row < count(); ++row) {
    const std::int64_t canonical = rows_[static_cast<std::size_t>(row)].canonical;
    (canonical < 0 ? padding_rows : valid_rows).push_back(row);
    if (canonical >= 0) canonical_rows.push_back(canonical);
  }
  valid_rows_ = index_tensor(valid_rows, device);
  padding_rows_ = index_tensor(padding_rows, device);
  canonical_rows_ = index_tensor(canonical_rows, device);
}

at::Tensor RankRows::shard(const at::Tensor& canonical) const {
  const auto heads = canonical.size(1);
  const auto dim = canonical.size(2);
  at::Tensor packed = at::full({count(), heads, dim}, std::numeric_limits<double>::quiet_NaN(), canonical.options());
  packed.index_copy_(0, valid_rows_, canonical.index_select(0, canonical_rows_));
  if (layout_ == Layout::thd) return packed;
  const at::Tensor by_sequence = packed.view({batch_, count() / batch_, heads, dim});
  return layout_ == Layout::bshd ? by_sequence : by_sequence.transpose(0, 1).contiguous();
}

bool RankRows::fits(const at::Tensor& shard) const {
  if (!shard.defined()) return false;
  if (layout_ == Layout::thd) return shard.dim() == 3 && shard.size(0) == count();
  const int batch_dim = layout_ == Layout::bshd ? 0 : 1;
  return shard.dim() == 4 && shard.size(batch_dim) == batch_ && shard.size(0) * shard.size(1) == count();
}

at::Tensor RankRows::packed(const at::Tensor& shard) const {
  if (!fits(shard)) {
    throw ShapeError(fmt::format("a tensor of shape [{}] is no {} shard of {} rows in {} sequences",
                                 shard.defined() ? fmt::format("{}", fmt::join(shard.sizes(), ", ")) : "undefined",
                                 to_string(layout_), count(), batch_));
  }
  if (layout_ == Layout::thd) return shard.contiguous();
  const at::Tensor by_sequence = layout_ == Layout::bshd ? shard : shard.transpose(0, 1);
  return by_sequence.contiguous().view({count(), shard.size(2), shard.size(3)});
}

}  // namespace cp_pool::verify
