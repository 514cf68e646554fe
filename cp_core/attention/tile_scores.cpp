#include "cp_core/attention/tile_scores.h"

#include <algorithm>
#include <limits>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>

#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();
constexpr std::size_t kScoreBytes = std::size_t{256} << 20U;  // of a block of raise_max_logit

// Groups the block's heads of a packed tensor [rows, heads, dim], whose heads are kv heads or query heads: fp32
// [block.kv_heads, (heads / kv_heads) * rows, dim].
at::Tensor by_kv_head(const at::Tensor& rows, std::int64_t all_kv_heads, const TileBlock& block) {
  const std::int64_t group = rows.size(1) / all_kv_heads;
  const at::Tensor heads = CP_MUTATE(gqa_mapping, rows.unflatten(1, {all_kv_heads, group}),
                                     rows.unflatten(1, {group, all_kv_heads}).transpose(1, 2));
  return heads.narrow(1, block.kv_head, block.kv_heads).permute({1, 2, 0, 3}).to(at::kFloat).flatten(1, 2);
}

// The inverse of by_kv_head, as a view [rows, heads, dim].
at::Tensor by_row(const at::Tensor& grouped, std::int64_t rows) {
  const at::Tensor heads = grouped.unflatten(1, {grouped.size(1) / rows, rows}).permute({2, 0, 1, 3});
  return CP_MUTATE(gqa_mapping, heads, heads.transpose(1, 2)).flatten(1, 2);
}

at::Tensor hidden_keys_cpu(const Tile& tile, const TileBlock& block) {
  at::Tensor hidden = at::empty({block.rows, tile.n}, at::TensorOptions(at::kBool));
  bool* row = hidden.mutable_data_ptr<bool>();
  for (std::int64_t i = 0; i < block.rows; ++i, row += tile.n) {
    const std::int64_t diagonal = block.row + i + tile.n - tile.m;
    const std::int64_t begin =
        tile.left == kInfiniteWindow ? 0 : std::clamp<std::int64_t>(diagonal - tile.left, 0, tile.n);
    const std::int64_t end =
        tile.right == kInfiniteWindow ? tile.n : std::clamp<std::int64_t>(diagonal + tile.right + 1, begin, tile.n);
    std::fill(row, row + begin, true);
    std::fill(row + begin, row + end, false);
    std::fill(row + end, row + tile.n, true);
  }
  return hidden;
}

// True where the window hides a key: bool [rows, n]. It is computed on the device, so that nothing is uploaded.
at::Tensor hidden_keys(const Tile& tile, const TileBlock& block, const at::Device& device) {
  if (device.is_cpu()) return hidden_keys_cpu(tile, block);
  const auto options = at::TensorOptions(at::kLong).device(device);
  const std::int64_t first_diagonal = block.row + tile.n - tile.m;
  const at::Tensor diagonal = at::arange(first_diagonal, first_diagonal + block.rows, options).unsqueeze(1);
  const at::Tensor offset = at::arange(tile.n, options).unsqueeze(0).sub(diagonal);
  if (tile.left == kInfiniteWindow) return offset.gt(tile.right);
  const at::Tensor before = offset.lt(-tile.left);
  return tile.right == kInfiniteWindow ? before : before.logical_or_(offset.gt(tile.right));
}

}  // namespace

at::Tensor bias_of_tile(const at::Tensor& bias, BiasRows rows, const Tile& tile) {
  const std::int64_t sequence = CP_MUTATE(bias_of_first_sequence, tile.sequence, 0);
  const at::Tensor of_sequence = bias.select(0, bias.size(0) == 1 ? 0 : sequence);
  at::Tensor columns = of_sequence.narrow(2, CP_MUTATE(bias_columns_from_zero, tile.k_position, 0), tile.n);
  if (bias.size(2) == 1) return columns;
  // BiasRows::local implies that every sequence has bias.size(2) rows in q.
  const std::int64_t row = rows == BiasRows::local ? tile.q_row % bias.size(2) : tile.q_position;
  return columns.narrow(1, CP_MUTATE(bias_rows_from_zero, row, 0), tile.m);
}

std::vector<TileBlock> tile_blocks(const Tile& tile, const AttentionOperands& operands, std::size_t bytes) {
  const std::int64_t all_kv_heads = operands.k.size(1);
  const std::int64_t row_bytes = operands.q.size(1) / all_kv_heads * tile.n * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t head_rows = std::max<std::int64_t>(static_cast<std::int64_t>(bytes) / row_bytes, 1);
  const std::int64_t rows = std::min(head_rows, tile.m);
  const std::int64_t kv_heads = std::clamp<std::int64_t>(head_rows / tile.m, 1, all_kv_heads);
  std::vector<TileBlock> blocks;
  for (std::int64_t h = 0; h < all_kv_heads; h += kv_heads) {
    for (std::int64_t row = 0; row < tile.m; row += rows) {
      blocks.push_back({.kv_head = h,
                        .kv_heads = std::min(kv_heads, all_kv_heads - h),
                        .row = row,
                        .rows = std::min(rows, tile.m - row)});
    }
  }
  return blocks;
}

TileBlock whole_tile(const Tile& tile, const AttentionOperands& operands) {
  return {.kv_head = 0, .kv_heads = operands.k.size(1), .row = 0, .rows = tile.m};
}

BlockScores::BlockScores(const Tile& tile, const TileBlock& block, const AttentionOperands& operands)
    : tile_(tile),
      block_(block),
      operands_(operands),
      group_(operands.q.size(1) / operands.k.size(1)),
      q_(queries(operands.q)),
      k_(keys(operands.k)),
      scores_(at::bmm(q_, k_.transpose(1, 2)).mul_(operands.scale)) {
  if (CP_MUTATE(softcap_after_bias, true, false)) cap();
  if (operands.bias.defined()) by_head(scores_).add_(bias_view(operands.bias).to(at::kFloat));
  if (CP_MUTATE(softcap_after_bias, false, true)) cap();
  if (!tile.full()) by_head(scores_).masked_fill_(hidden_keys(tile, block, scores_.device()), kHidden);
}

void BlockScores::cap() {
  if (operands_.softcap == 0.0 || CP_MUTATE(softcap_ignored, false, true)) return;
  const double cap = operands_.softcap * CP_MUTATE(softcap_before_scale, 1.0, operands_.scale);
  tanh_ = scores_.div_(cap).tanh_();
  scores_ = tanh_.mul(cap);
}

at::Tensor BlockScores::queries(const at::Tensor& rows) const {
  return by_kv_head(rows.narrow(0, tile_.q_row + block_.row, block_.rows), operands_.k.size(1), block_);
}

at::Tensor BlockScores::keys(const at::Tensor& rows) const {
  return by_kv_head(rows.narrow(0, tile_.k_row, tile_.n), operands_.k.size(1), block_);
}

at::Tensor BlockScores::by_head(const at::Tensor& grouped) const {
  return grouped.view({-1, block_.rows, grouped.size(2)});
}

at::Tensor BlockScores::statistic(const at::Tensor& statistic) const {
  return statistic_view(statistic).contiguous().view({block_.kv_heads, -1, 1});
}

at::Tensor BlockScores::query_view(const at::Tensor& rows) const {
  return rows.narrow(0, tile_.q_row + block_.row, block_.rows)
      .narrow(1, block_.kv_head * group_, block_.kv_heads * group_);
}

at::Tensor BlockScores::key_view(const at::Tensor& rows) const {
  return rows.narrow(0, tile_.k_row, tile_.n).narrow(1, block_.kv_head, block_.kv_heads);
}

at::Tensor BlockScores::statistic_view(const at::Tensor& statistic) const {
  return head_view(statistic).narrow(1, tile_.q_row + block_.row, block_.rows);
}

at::Tensor BlockScores::head_view(const at::Tensor& of_heads) const {
  return of_heads.narrow(0, block_.kv_head * group_, block_.kv_heads * group_);
}

at::Tensor BlockScores::bias_view(const at::Tensor& bias) const {
  at::Tensor view = bias_of_tile(bias, operands_.bias_rows, tile_);
  if (view.size(0) > 1) view = head_view(view);
  return view.size(1) > 1 ? view.narrow(1, block_.row, block_.rows) : view;
}

at::Tensor BlockScores::as_queries(const at::Tensor& grouped) const {
  return by_row(grouped, block_.rows);
}

at::Tensor BlockScores::as_keys(const at::Tensor& grouped) const {
  return by_row(grouped, tile_.n);
}

void raise_max_logit(const TileGroup& group, const AttentionOperands& operands, at::Tensor& max_logit) {
  const at::NoTF32Guard full_precision;
  for (const Tile& tile : group.tiles) {
    for (const TileBlock& block : tile_blocks(tile, operands, kScoreBytes)) {
      BlockScores scores(tile, block, operands);
      at::Tensor largest = scores.head_view(max_logit);
      at::maximum_out(largest, largest, scores.by_head(scores.scores()).amax({1, 2}));
    }
  }
}

}  // namespace cp_pool
