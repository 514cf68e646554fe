#include "cp_core/verify/rank_bias.h"

#include <algorithm>

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/verify/check.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::verify {
namespace {

RankRows rows_of(const Case& c, const SequenceLengths& lengths, int rank, int size, const at::Device& device) {
  if (c.bias == BiasShape::shape_111s) return RankRows::replicated(1, 1, device);
  const std::int64_t valid = std::ranges::max(lengths.valid_q);
  const std::int64_t padded = std::ranges::max(lengths.padded_q);
  if (c.layout == Layout::thd) return RankRows::replicated(valid, padded, device);
  return {Layout::thd, rank, size, {valid}, {padded}, device};
}

void fill_from(at::Tensor& tensor, std::int64_t dim, std::int64_t first) {
  if (first < tensor.size(dim)) tensor.narrow(dim, first, tensor.size(dim) - first).fill_(kNaN);
}

}  // namespace

RankBias::RankBias(const Case& c, const SequenceLengths& lengths, int rank, int size, const at::Device& device)
    : lengths_(lengths),
      rows_(rows_of(c, lengths, rank, size, device)),
      padded_columns_(std::ranges::max(lengths.padded_kv)) {}

at::Tensor RankBias::shard(const at::Tensor& bias) const {
  at::Tensor poisoned = bias.clone();
  for (std::int64_t b = 0; b < bias.size(0) && bias.size(0) > 1; ++b) {
    at::Tensor of_sequence = poisoned.select(0, b);
    fill_from(of_sequence, 1, lengths_.valid_q[static_cast<std::size_t>(b)]);
    fill_from(of_sequence, 2, lengths_.valid_kv[static_cast<std::size_t>(b)]);
  }
  const at::Tensor rows = rows_.shard(bias_by_row(poisoned));
  at::Tensor padded = at::full({rows.size(0), rows.size(1), padded_columns_}, kNaN, rows.options());
  padded.narrow(2, 0, rows.size(2)).copy_(rows);
  return padded.view({rows.size(0), bias.size(0), bias.size(1), padded_columns_}).permute({1, 2, 0, 3}).contiguous();
}

Check RankBias::check(const ExpectedTensor& expected, const at::Tensor& dbias) const {
  const auto matrices = expected.value.size(1);
  const auto columns = expected.value.size(2);
  if (dbias.dim() != 4 || dbias.size(0) * dbias.size(1) != matrices || dbias.size(2) != rows_.count() ||
      dbias.size(3) != padded_columns_) {
    return failed_check(expected.name,
                        fmt::format("shape [{}] instead of {} matrices of {} x {}", fmt::join(dbias.sizes(), ", "),
                                    matrices, rows_.count(), padded_columns_));
  }
  const at::Tensor by_row = bias_by_row(dbias);
  if (by_row.narrow(2, columns, padded_columns_ - columns).ne(0.0).any().item<bool>()) {
    return failed_check(expected.name, "padding columns are not zero");
  }
  return check_tensor(expected, rows_, by_row.narrow(2, 0, columns));
}

}  // namespace cp_pool::verify
