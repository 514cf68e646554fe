#include "cp_core/diagnosis/dense_problem.h"

#include <cstddef>
#include <map>

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>

#include "cp_core/verify/rank_bias.h"
#include "cp_core/verify/rows.h"

namespace cp_pool::diagnosis {
namespace {

// Returns the rows of all ranks of a canonical tensor, with the values of padding; NaN becomes 0.
at::Tensor padded_rows(const at::Tensor& canonical, const verify::RowsByRank& by_rank, verify::PaddingFill fill) {
  std::vector<at::Tensor> parts;
  for (const auto& rows : by_rank) {
    parts.push_back(verify::RankRows(Layout::thd, 1, rows, fill).shard(canonical));
  }
  return at::cat(parts).to(at::kDouble).nan_to_num_(0.0);
}

// Returns the bias up to the largest padded lengths, as ranks hold it.
at::Tensor padded_bias(const Observation& of, const verify::Ownership& owners) {
  if (of.c.layout != Layout::thd && of.c.bias != BiasShape::shape_111s) return of.inputs.bias.to(at::kDouble);
  const verify::RankRows queries(of.c.layout, of.c.batch, owners.q.front(), of.sharding.padding);
  return verify::RankBias(of.c, of.lengths, queries).shard(of.inputs.bias).to(at::kDouble).nan_to_num_(0.0);
}

}  // namespace

at::Tensor index_tensor(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

at::Tensor evenly(const at::Tensor& rows, std::int64_t most) {
  if (rows.numel() <= most) return rows;
  return rows.index_select(0, at::linspace(0, static_cast<double>(rows.numel() - 1), most).to(at::kLong));
}

std::vector<std::int64_t> defined_kv_heads(const Case& c) {
  std::vector<std::int64_t> kv_of;
  kv_of.reserve(static_cast<std::size_t>(c.heads));
  for (std::int64_t h = 0; h < c.heads; ++h) kv_of.push_back(h / (c.heads / c.kv_heads));
  return kv_of;
}

at::Tensor by_query_head(const at::Tensor& keys, const std::vector<std::int64_t>& kv_of) {
  return keys.transpose(0, 1).index_select(0, index_tensor(kv_of));
}

Side::Side(const verify::RowsByRank& by_rank, bool poisoned_padding) {
  struct Column {
    at::Tensor Side::* member;
    std::vector<std::int64_t> values = {};
  };
  std::array columns{Column{&Side::rank},      Column{&Side::sequence}, Column{&Side::position},
                     Column{&Side::canonical}, Column{&Side::row},      Column{&Side::original},
                     Column{&Side::place},     Column{&Side::half},     Column{&Side::place_in_half}};
  std::map<std::int64_t, std::vector<std::int64_t>> rows_of;  // of each canonical row
  for (std::int64_t row = 0; const auto& of_rank : by_rank) {
    for (const verify::LocalRow& local : of_rank) rows_of[local.canonical].push_back(row++);
  }
  const auto is_replicated = [&](const verify::LocalRow& local) {
    return local.canonical >= 0 && rows_of[local.canonical].size() > 1;
  };
  std::int64_t row = 0;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    first.push_back(row);
    std::map<std::int64_t, std::int64_t> counts;  // by sequence
    for (const verify::LocalRow& local : by_rank[r]) counts[local.sequence] += is_replicated(local) ? 0 : 1;
    std::map<std::int64_t, std::int64_t> before;
    std::map<std::int64_t, std::int64_t> cut_before;
    for (const verify::LocalRow& local : by_rank[r]) {
      const std::int64_t of_half = std::max<std::int64_t>(1, (counts[local.sequence] + 1) / 2);
      const bool replicated = is_replicated(local);
      const std::int64_t place = replicated ? 0 : cut_before[local.sequence]++;
      const std::array values{static_cast<std::int64_t>(r),
                              local.sequence,
                              local.position,
                              local.canonical,
                              row,
                              replicated ? rows_of[local.canonical].front() : row,
                              before[local.sequence]++,
                              place / of_half,
                              place % of_half};
      ++row;
      for (std::size_t i = 0; i < columns.size(); ++i) columns[i].values.push_back(values[i]);
    }
  }
  first.push_back(row);
  for (const Column& column : columns) this->*column.member = index_tensor(column.values);
  valid = canonical.ge(0);
  poisoned = poisoned_padding ? valid.logical_not() : at::full_like(valid, false);
  copy = original.ne(this->row);
}

Side Side::selected(const at::Tensor& rows) const {
  Side some;
  for (const auto member :
       {&Side::rank, &Side::sequence, &Side::position, &Side::canonical, &Side::row, &Side::original, &Side::place,
        &Side::half, &Side::place_in_half, &Side::valid, &Side::poisoned, &Side::copy}) {
    some.*member = (this->*member).index_select(0, rows);
  }
  return some;
}

DenseProblem::DenseProblem(const Observation& of)
    : observation(&of),
      problem(verify::canonical_problem(of.c, of.lengths)),
      ranks(static_cast<int>(of.results.size())) {
  owners = verify::ownership_of(of.sharding, of.c.layout, of.lengths, ranks);
  const verify::PaddingFill fill = of.sharding.padding;
  const bool poisoned = fill == verify::PaddingFill::nan;
  q_rows = Side(owners.q, poisoned);
  kv_rows = Side(owners.kv, poisoned);
  q = padded_rows(of.inputs.q, owners.q, fill);
  k = padded_rows(of.inputs.k, owners.kv, fill);
  v = padded_rows(of.inputs.v, owners.kv, fill);
  if (of.inputs.dout.defined()) dout = padded_rows(of.inputs.dout, owners.q, verify::PaddingFill::zeros);
  if (of.inputs.bias.defined()) bias = padded_bias(of, owners);
  if (of.inputs.sink.defined()) sink = of.inputs.sink.to(at::kDouble);
}

DenseProblem DenseProblem::with_queries(const at::Tensor& rows) const {
  DenseProblem some = *this;
  some.q_rows = q_rows.selected(rows);
  some.q = q.index_select(0, rows);
  if (dout.defined()) some.dout = dout.index_select(0, rows);
  some.raw_products_ = {};
  return some;
}

const at::Tensor& DenseProblem::raw_products(bool of_v) const {
  at::Tensor& known = raw_products_.at(of_v ? 1 : 0);
  if (!known.defined()) {
    const at::Tensor keys = by_query_head(of_v ? v : k, defined_kv_heads(c()));
    known = at::bmm((of_v ? dout : q).transpose(0, 1), keys.transpose(1, 2));
  }
  return known;
}

at::Tensor DenseProblem::bias_index_at(const at::Tensor& sequences, const at::Tensor& q_positions,
                                       const at::Tensor& kv_positions) const {
  const std::int64_t rows = bias.size(2);
  const std::int64_t columns = bias.size(3);
  const at::Tensor sequence = bias.size(0) == 1 ? sequences.mul(0) : sequences;
  const at::Tensor row = q_positions.clamp(0, rows - 1);
  const at::Tensor column = kv_positions.clamp(0, columns - 1);
  return sequence.mul(rows).add(row).mul(columns).unsqueeze(1).add(column);
}

}  // namespace cp_pool::diagnosis
