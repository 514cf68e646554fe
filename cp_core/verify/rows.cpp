#include "cp_core/verify/rows.h"

#include <utility>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool::verify {
namespace {

at::Tensor index_tensor(const std::vector<std::int64_t>& values, const at::Device& device) {
  return at::tensor(values, at::kLong).to(device);
}

}  // namespace

RankRows::RankRows(Layout layout, std::int64_t batch, std::vector<LocalRow> rows, PaddingFill fill,
                   const at::Device& device)
    : layout_(layout), batch_(batch), rows_(std::move(rows)), fill_(fill) {
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

RankRows::RankRows(Layout layout, int rank, int size, const std::vector<std::int64_t>& valid,
                   const std::vector<std::int64_t>& padded, const at::Device& device)
    : RankRows(layout, static_cast<std::int64_t>(valid.size()),
               rows_by_convention({}, layout, valid, padded, size)[static_cast<std::size_t>(rank)], PaddingFill::nan,
               device) {}

RankRows RankRows::replicated(std::int64_t valid, std::int64_t padded, PaddingFill fill, const at::Device& device) {
  std::vector<LocalRow> rows;
  rows.reserve(static_cast<std::size_t>(padded));
  for (std::int64_t position = 0; position < padded; ++position) {
    rows.push_back({.sequence = 0, .position = position, .canonical = position < valid ? position : -1});
  }
  return {Layout::thd, 1, std::move(rows), fill, device};
}

at::Tensor RankRows::shard(const at::Tensor& canonical, PaddingFill fill) const {
  const auto heads = canonical.size(1);
  const auto dim = canonical.size(2);
  at::Tensor packed = padding_values({count(), heads, dim}, fill, canonical.options());
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
