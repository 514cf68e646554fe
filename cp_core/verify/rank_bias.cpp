#include "cp_core/verify/rank_bias.h"

#include <algorithm>

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/verify/check.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::verify {
namespace {

// Returns the rank's rows of the first sequence. For bshd and sbhd, where all sequences are equally long and sharded
// alike.
RankRows rows_of_first_sequence(const RankRows& queries, std::int64_t sequences, const at::Device& device) {
  const auto count = static_cast<std::size_t>(queries.count() / sequences);
  return {Layout::thd,
          1,
          {queries.rows().begin(), queries.rows().begin() + static_cast<std::ptrdiff_t>(count)},
          queries.fill(),
          device};
}

RankRows rows_of(const Case& c, const SequenceLengths& lengths, const RankRows& queries, const at::Device& device) {
  if (c.bias == BiasShape::shape_111s) return RankRows::replicated(1, 1, queries.fill(), device);
  if (c.layout != Layout::thd) return rows_of_first_sequence(queries, c.batch, device);
  return RankRows::replicated(std::ranges::max(lengths.valid_q), std::ranges::max(lengths.padded_q), queries.fill(),
                              device);
}

}  // namespace

RankBias::RankBias(const Case& c, const SequenceLengths& lengths, const RankRows& queries, const at::Device& device)
    : lengths_(lengths),
      rows_(rows_of(c, lengths, queries, device)),
      padded_columns_(std::ranges::max(lengths.padded_kv)) {}

at::Tensor RankBias::shard(const at::Tensor& bias) const {
  at::Tensor poisoned = bias.clone();
  const at::Tensor padding = padding_values(bias.sizes(), rows_.fill(), bias.options());
  const auto fill_from = [&](std::int64_t b, std::int64_t dim, std::int64_t first) {
    const std::int64_t rest = bias.size(dim) - first;
    if (rest <= 0) return;
    poisoned.narrow(0, b, 1).narrow(dim, first, rest).copy_(padding.narrow(0, b, 1).narrow(dim, first, rest));
  };
  for (std::int64_t b = 0; b < bias.size(0) && bias.size(0) > 1; ++b) {
    fill_from(b, 2, lengths_.valid_q[static_cast<std::size_t>(b)]);
    fill_from(b, 3, lengths_.valid_kv[static_cast<std::size_t>(b)]);
  }
  const at::Tensor rows = rows_.shard(bias_by_row(poisoned));
  at::Tensor padded = padding_values({rows.size(0), rows.size(1), padded_columns_}, rows_.fill(), rows.options());
  padded.narrow(2, 0, rows.size(2)).copy_(rows);
  return padded.view({rows.size(0), bias.size(0), bias.size(1), padded_columns_}).permute({1, 2, 0, 3}).contiguous();
}

Check RankBias::check(const ExpectedTensor& expected, const at::Tensor& dbias, const CheckRules& rules) const {
  const auto matrices = expected.value.size(1);
  const auto columns = expected.value.size(2);
  if (dbias.dim() != 4 || dbias.size(0) * dbias.size(1) != matrices || dbias.size(2) != rows_.count() ||
      dbias.size(3) != padded_columns_) {
    return failed_check(expected.name,
                        fmt::format("shape [{}] instead of {} matrices of {} x {}", fmt::join(dbias.sizes(), ", "),
                                    matrices, rows_.count(), padded_columns_));
  }
  const at::Tensor by_row = bias_by_row(dbias);
  if (rules.judges_padding && by_row.narrow(2, columns, padded_columns_ - columns).ne(0.0).any().item<bool>()) {
    return failed_check(expected.name, "padding columns are not zero");
  }
  return check_tensor(expected, rows_, by_row.narrow(2, 0, columns), rules);
}

}  // namespace cp_pool::verify
