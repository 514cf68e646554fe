#include "cp_core/attention/backend.h"

#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

namespace cp_pool {

PackedGradients make_gradient_sums(const AttentionOperands& operands) {
  const auto options = operands.q.options().dtype(at::kFloat);
  PackedGradients sums;
  sums.dq = at::zeros(operands.q.sizes(), options);
  sums.dk = at::zeros(operands.k.sizes(), options);
  sums.dv = at::zeros(operands.v.sizes(), options);
  return sums;
}

void PendingSums::wait_for_turn() {
  if (turn) std::exchange(turn, nullptr)();
}

void PendingSums::fill_dq() {
  if (dq_empty) sums.dq.zero_();
  dq_empty = false;
}

void PendingSums::fill_dkv() {
  if (dkv_empty) {
    sums.dk.zero_();
    sums.dv.zero_();
  }
  dkv_empty = false;
}

void PendingSums::make_ready() {
  wait_for_turn();
  fill_dq();
  fill_dkv();
}

namespace {

void append(std::vector<RowCopy>& rows, std::int64_t target, std::int64_t count) {
  const std::int64_t source = row_count(rows);
  if (!rows.empty() && rows.back().target + rows.back().count == target) {
    rows.back().count += count;
  } else {
    rows.push_back({.source = source, .target = target, .count = count});
  }
}

}  // namespace

std::vector<RowCopy> query_rows_of(std::span<const Tile> tiles) {
  std::vector<RowCopy> rows;
  for (const Tile& tile : tiles) append(rows, tile.q_row, tile.m);
  return rows;
}

std::vector<RowCopy> key_rows_of(std::span<const Tile> tiles) {
  std::vector<RowCopy> rows;
  for (const Tile& tile : tiles) append(rows, tile.k_row, tile.n);
  return rows;
}

std::int64_t row_count(std::span<const RowCopy> rows) {
  return rows.empty() ? 0 : rows.back().source + rows.back().count;
}

bool all_in_place(std::span<const RowCopy> rows, std::int64_t count) {
  std::int64_t next = 0;
  for (const RowCopy& range : rows) {
    if (range.target != next || range.source != next) return false;
    next += range.count;
  }
  return next == count;
}

bool rows_are_disjoint(const TilePlan& plan) {
  if (plan.empty()) return true;
  std::int64_t next = 0;
  for (const Tile& tile : plan.front().tiles) {
    if (tile.k_row < next) return false;
    next = tile.k_row + tile.n;
  }
  return plan.size() == 1;
}

std::span<const Tile> tiles_of(const TilePlan& plan) {
  TORCH_INTERNAL_ASSERT(plan.size() <= 1);
  return plan.empty() ? std::span<const Tile>() : plan.front().tiles;
}

}  // namespace cp_pool
