#include "cp_core/attention/math_backend.h"

#include <algorithm>
#include <limits>

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>

#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Heads in groups of those that share a kv head, so that one product per kv head serves its whole group:
// [rows, heads, dim] -> fp32 [kv_heads, (heads / kv_heads) * rows, dim].
at::Tensor by_kv_head(const at::Tensor& rows, std::int64_t kv_heads) {
  const std::int64_t group = rows.size(1) / kv_heads;
  const at::Tensor heads = CP_MUTATE(gqa_mapping, rows.unflatten(1, {kv_heads, group}),
                                     rows.unflatten(1, {group, kv_heads}).transpose(1, 2));
  return heads.permute({1, 2, 0, 3}).to(at::kFloat).flatten(1, 2);
}

// The inverse, as a view [rows, heads, dim].
at::Tensor by_row(const at::Tensor& grouped, std::int64_t rows) {
  const at::Tensor heads = grouped.unflatten(1, {grouped.size(1) / rows, rows}).permute({2, 0, 1, 3});
  return CP_MUTATE(gqa_mapping, heads, heads.transpose(1, 2)).flatten(1, 2);
}

// [heads, rows] -> [kv_heads, (heads / kv_heads) * rows, 1]
at::Tensor statistic_by_kv_head(const at::Tensor& statistic, std::int64_t kv_heads) {
  return statistic.contiguous().view({kv_heads, -1, 1});
}

// True where the window hides a key. [m, n]
at::Tensor hidden_keys(const Tile& tile, const at::Device& device) {
  at::Tensor hidden = at::empty({tile.m, tile.n}, at::TensorOptions(at::kBool));
  bool* row = hidden.mutable_data_ptr<bool>();
  for (std::int64_t i = 0; i < tile.m; ++i, row += tile.n) {
    const std::int64_t diagonal = i + tile.n - tile.m;
    const std::int64_t begin =
        tile.left == kInfiniteWindow ? 0 : std::clamp<std::int64_t>(diagonal - tile.left, 0, tile.n);
    const std::int64_t end =
        tile.right == kInfiniteWindow ? tile.n : std::clamp<std::int64_t>(diagonal + tile.right + 1, begin, tile.n);
    std::fill(row, row + begin, true);
    std::fill(row + begin, row + end, false);
    std::fill(row + end, row + tile.n, true);
  }
  return hidden.to(device);
}

// The part of a bias, or of its gradient, that a tile needs: [1 or heads, 1 or m, n].
at::Tensor bias_of_tile(const at::Tensor& bias, BiasRows rows, const Tile& tile) {
  const std::int64_t sequence = CP_MUTATE(bias_of_first_sequence, tile.sequence, 0);
  const at::Tensor of_sequence = bias.select(0, bias.size(0) == 1 ? 0 : sequence);
  at::Tensor columns = of_sequence.narrow(2, CP_MUTATE(bias_columns_from_zero, tile.k_position, 0), tile.n);
  if (bias.size(2) == 1) return columns;
  // `local` implies sequences of one length, so that rows repeat with that period.
  const std::int64_t row = rows == BiasRows::local ? tile.q_row % bias.size(2) : tile.q_position;
  return columns.narrow(1, CP_MUTATE(bias_rows_from_zero, row, 0), tile.m);
}

// One tile's operands, and its scores: fp32 [kv_heads, (heads / kv_heads) * m, n], -inf where hidden.
class TileScores {
 public:
  TileScores(const Tile& tile, const AttentionOperands& operands)
      : kv_heads_(operands.k.size(1)),
        q_(by_kv_head(operands.q.narrow(0, tile.q_row, tile.m), kv_heads_)),
        k_(by_kv_head(operands.k.narrow(0, tile.k_row, tile.n), kv_heads_)),
        v_(by_kv_head(operands.v.narrow(0, tile.k_row, tile.n), kv_heads_)),
        scores_(at::bmm(q_, k_.transpose(1, 2)).mul_(operands.scale)) {
    if (operands.bias.defined()) {
      heads_view(tile).add_(bias_of_tile(operands.bias, operands.bias_rows, tile).to(at::kFloat));
    }
    if (!tile.full()) heads_view(tile).masked_fill_(hidden_keys(tile, scores_.device()), kMinusInfinity);
  }

  [[nodiscard]] std::int64_t kv_heads() const { return kv_heads_; }
  [[nodiscard]] const at::Tensor& q() const { return q_; }
  [[nodiscard]] const at::Tensor& k() const { return k_; }
  [[nodiscard]] const at::Tensor& v() const { return v_; }
  [[nodiscard]] at::Tensor& scores() { return scores_; }
  // [heads, m, n]
  [[nodiscard]] at::Tensor heads_view(const Tile& tile) const { return scores_.view({-1, tile.m, tile.n}); }

 private:
  std::int64_t kv_heads_;
  at::Tensor q_;
  at::Tensor k_;
  at::Tensor v_;
  at::Tensor scores_;
};

void forward_tile(const Tile& tile, const AttentionOperands& operands, AttentionPartial& partial) {
  TileScores scores(tile, operands);
  const at::Tensor largest = scores.scores().amax(-1, true);
  const at::Tensor p = scores.scores().sub_(largest).exp_();
  const at::Tensor sum = p.sum(-1, true);
  const at::Tensor out = at::bmm(p, scores.v()).div_(sum);
  partial.out.narrow(0, tile.q_row, tile.m).copy_(by_row(out, tile.m));
  const at::Tensor row_max = largest.view({-1, tile.m});
  partial.lse.narrow(1, tile.q_row, tile.m).copy_(sum.log().view({-1, tile.m}).add_(row_max));
  if (partial.max_logit.defined()) {
    partial.max_logit = at::maximum(partial.max_logit, row_max.amax(-1));
  }
}

void add_dbias(at::Tensor& dbias, BiasRows rows, const Tile& tile, const at::Tensor& dscores) {
  at::Tensor target = bias_of_tile(dbias, rows, tile);
  const at::Tensor sum =
      target.size(0) == 1 ? CP_MUTATE(dbias_one_head, dscores.sum(0, true), dscores.narrow(0, 0, 1)) : dscores;
  CP_MUTATE(dbias_overwrites, target.add_(sum), target.copy_(sum));
}

void backward_tile(const Tile& tile, const AttentionOperands& operands, const AttentionBackwardOperands& backward,
                   AttentionGradientSums& sums) {
  TileScores scores(tile, operands);
  const at::Tensor dout = by_kv_head(backward.dout.narrow(0, tile.q_row, tile.m), scores.kv_heads());
  const at::Tensor lse = statistic_by_kv_head(backward.lse.narrow(1, tile.q_row, tile.m), scores.kv_heads());
  const at::Tensor delta = statistic_by_kv_head(backward.delta.narrow(1, tile.q_row, tile.m), scores.kv_heads());
  const at::Tensor p = scores.scores().sub_(lse).exp_();
  at::Tensor dv = sums.dv.narrow(0, tile.k_row, tile.n);
  dv.add_(by_row(at::bmm(p.transpose(1, 2), dout), tile.n));

  at::Tensor dscores = at::bmm(dout, scores.v().transpose(1, 2));
  CP_MUTATE(delta_missing, dscores.sub_(delta), dscores).mul_(p);
  if (sums.dbias.defined()) {
    add_dbias(sums.dbias, operands.bias_rows, tile, dscores.view({-1, tile.m, tile.n}));
  }
  at::Tensor dq = sums.dq.narrow(0, tile.q_row, tile.m);
  const at::Tensor tile_dq =
      by_row(at::bmm(dscores, scores.k()), tile.m).mul(CP_MUTATE(dq_scale_missing, operands.scale, 1.0));
  CP_MUTATE(dq_overwrites, dq.add_(tile_dq), dq.copy_(tile_dq));
  at::Tensor dk = sums.dk.narrow(0, tile.k_row, tile.n);
  const at::Tensor tile_dk = by_row(at::bmm(dscores.transpose(1, 2), scores.q()), tile.n)
                                 .mul(CP_MUTATE(dk_scale_missing, operands.scale, 1.0));
  CP_MUTATE(dk_overwrites, dk.add_(tile_dk), dk.copy_(tile_dk));
}

}  // namespace

void MathBackend::forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) {
  for (const Tile& tile : group.tiles) forward_tile(tile, operands, partial);
}

void MathBackend::backward(const TileGroup& group, const AttentionOperands& operands,
                           const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums) {
  for (const Tile& tile : group.tiles) backward_tile(tile, operands, backward_operands, sums);
}

}  // namespace cp_pool
