#include "cp_core/attention/math/math_backend.h"

#include <ATen/Context.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/attention/cuda_backends.h"
#include "cp_core/attention/tile_scores.h"
#include "cp_core/mutation.h"
#include "cp_core/vector_math.h"

namespace cp_pool {
namespace {

// Scores are computed in blocks on a GPU: those of 128 heads of 4096 x 4096 would not fit beside the other tensors.
constexpr std::size_t kScoreBytesOnGpu = std::size_t{1} << 30U;

std::vector<TileBlock> blocks_of(const Tile& tile, const AttentionOperands& operands) {
  if (operands.q.is_cpu()) return {whole_tile(tile, operands)};
  return tile_blocks(tile, operands, kScoreBytesOnGpu);
}

#ifdef CP_POOL_MUTANTS
Tile without_window(Tile tile) {
  tile.left = tile.right = kInfiniteWindow;
  return tile;
}

Tile with_next_key(Tile tile, const AttentionOperands& operands) {
  if (!operands.bias.defined() && tile.k_row + tile.n < operands.k.size(0)) ++tile.n;
  return tile;
}

at::Tensor row_max_of(const Tile& tile, const TileBlock& block, const AttentionOperands& operands) {
  BlockScores scores(tile, block, operands);
  return scores.by_head(scores.scores().amax(-1, true)).squeeze(-1);
}
#endif

void forward_block(const Tile& tile, const TileBlock& block, const AttentionOperands& operands,
                   AttentionPartial& partial) {
  BlockScores scores(tile, block, operands);
  const at::Tensor largest = scores.scores().amax(-1, true);
  at::Tensor shift = CP_MUTATE(softmax_max_not_subtracted, largest, at::zeros_like(largest));
  shift = CP_MUTATE(softmax_max_from_0, shift, largest.clamp_min(0.0));
  shift = CP_MUTATE(softmax_max_from_minus_1e4, shift, largest.clamp_min(-1e4));
  shift = CP_MUTATE(softmax_max_from_minus_5e4, shift, largest.clamp_min(-5e4));
  const at::Tensor p = scores.scores().sub_(shift).exp_();
  const at::Tensor sum = p.sum(-1, true);
  const at::Tensor out = at::bmm(p, scores.keys(operands.v)).div_(sum);
  scores.query_view(partial.out).copy_(scores.as_queries(out));
  scores.statistic_view(partial.lse).copy_(scores.by_head(sum.log().add_(shift)).squeeze(-1));
  if (partial.max_logit.defined()) {
    const at::Tensor row_max = scores.by_head(largest).squeeze(-1);
    at::Tensor max_logit = scores.head_view(partial.max_logit);
    at::Tensor counted =
        CP_MUTATE(max_logit_of_hidden_keys, row_max, row_max_of(without_window(tile), block, operands));
    counted = CP_MUTATE(max_logit_past_tile, counted, row_max_of(with_next_key(tile, operands), block, operands));
    at::maximum_out(max_logit, max_logit, counted.amax(-1));
  }
}

void add_dbias(const at::Tensor& target, const at::Tensor& dscores) {
  const at::Tensor of_heads =
      target.size(0) == 1 ? CP_MUTATE(dbias_one_head, dscores.sum(0, true), dscores.narrow(0, 0, 1)) : dscores;
  CP_MUTATE(dbias_overwrites, target.add_(of_heads), target.copy_(of_heads));
}

void backward_block(const Tile& tile, const TileBlock& block, const AttentionOperands& operands,
                    const AttentionBackwardOperands& backward, PackedGradients& sums) {
  BlockScores scores(tile, block, operands);
  const at::Tensor dout = scores.queries(backward.dout);
  const at::Tensor lse =
      CP_MUTATE(backward_lse_of_part, scores.statistic(backward.lse), scores.scores().logsumexp({-1}, true));
  const at::Tensor p =
      CP_MUTATE(backward_lse_divided, scores.scores().sub_(lse).exp_(), scores.scores().exp_().div_(lse.exp()));
  at::Tensor dv = scores.key_view(sums.dv);
  dv.add_(scores.as_keys(at::bmm(p.transpose(1, 2), dout)));

  at::Tensor dscores = at::bmm(dout, scores.keys(operands.v).transpose(1, 2));
  const at::Tensor delta = CP_MUTATE(backward_out_of_part, scores.statistic(backward.delta),
                                     dscores.mul(p).sum(-1, true).div(p.sum(-1, true)));
  CP_MUTATE(delta_missing, dscores.sub_(delta), dscores).mul_(p);
  const at::Tensor slope = CP_MUTATE(softcap_gradient_missing, scores.slope(), at::Tensor());
  if (slope.defined() && CP_MUTATE(softcap_after_bias, false, true)) dscores.mul_(slope);
  if (sums.dbias.defined()) add_dbias(scores.bias_view(sums.dbias), scores.by_head(dscores));
  if (slope.defined() && CP_MUTATE(softcap_after_bias, true, false)) dscores.mul_(slope);
  at::Tensor dq = scores.query_view(sums.dq);
  const at::Tensor tile_dq =
      scores.as_queries(at::bmm(dscores, scores.k())).mul(CP_MUTATE(dq_scale_missing, operands.scale, 1.0));
  CP_MUTATE(dq_overwrites, dq.add_(tile_dq), dq.copy_(tile_dq));
  if (CP_MUTATE(dq_rounded_each_part, false, true)) dq.copy_(dq.to(at::kBFloat16));
  at::Tensor dk = scores.key_view(sums.dk);
  const at::Tensor tile_dk = scores.as_keys(at::bmm(dscores.transpose(1, 2), scores.q()))
                                 .mul(CP_MUTATE(dk_scale_missing, operands.scale, 1.0));
  CP_MUTATE(dk_overwrites, dk.add_(tile_dk), dk.copy_(tile_dk));
}

// The packed rows that `rows` names along dimension `dim`, one after the other.
at::Tensor rows_of(const at::Tensor& packed, std::span<const RowCopy> rows, std::int64_t dim, at::ScalarType dtype) {
  std::vector<std::int64_t> sizes = packed.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = row_count(rows);
  const at::Tensor result = at::empty(sizes, packed.options().dtype(dtype));
  for (const RowCopy& range : rows) {
    result.narrow(dim, range.source, range.count).copy_(packed.narrow(dim, range.target, range.count));
  }
  return result;
}

}  // namespace

MathBackend::MathBackend(Results results) : results_(results) {
  settle_vector_math();
}

void MathBackend::forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) {
  const at::NoTF32Guard full_precision;
  for (const Tile& tile : group.tiles) {
    for (const TileBlock& block : blocks_of(tile, operands)) forward_block(tile, block, operands, partial);
  }
}

void MathBackend::backward(const TileGroup& group, const AttentionOperands& operands,
                           const AttentionBackwardOperands& backward_operands, PendingSums& pending) {
  pending.make_ready();
  const at::NoTF32Guard full_precision;
  for (const Tile& tile : group.tiles) {
    for (const TileBlock& block : blocks_of(tile, operands)) {
      backward_block(tile, block, operands, backward_operands, pending.sums);
    }
  }
}

bool MathBackend::gives_calls(const AttentionOperands& operands) const {
  return results_ == Results::calls && !operands.bias.defined() && at::isReducedFloatingType(operands.q.scalar_type());
}

std::vector<CalledForward> MathBackend::forward_calls(const TileGroup& part, const AttentionOperands& operands) {
  if (!gives_calls(operands)) return {};
  const auto options = operands.q.options().dtype(at::kFloat);
  const std::int64_t tokens = operands.q.size(0);
  const std::int64_t heads = operands.q.size(1);
  AttentionPartial partial{.out = at::empty({tokens, heads, operands.v.size(2)}, options),
                           .lse = at::empty({heads, tokens}, options),
                           .max_logit = {}};
  forward(part, operands, partial);
  CalledForward call{.out = {}, .lse = {}, .rows = query_rows_of(part.tiles)};
  call.out = rows_of(partial.out, call.rows, 0, operands.q.scalar_type());
  call.lse = rows_of(partial.lse, call.rows, 1, at::kFloat);
  return {call};
}

bool MathBackend::contributes_once(const TilePlan& plan, const AttentionOperands& like) const {
  return gives_calls(like) && rows_are_disjoint(plan);
}

PackedGradients MathBackend::gradients_of(const TilePlan& plan, const AttentionOperands& operands,
                                          const AttentionBackwardOperands& backward_operands) {
  PendingSums ready{.sums = make_gradient_sums(operands)};
  for (const TileGroup& group : plan) backward(group, operands, backward_operands, ready);
  return ready.sums;
}

PackedGradients MathBackend::called_gradients(const TilePlan& plan, const AttentionOperands& operands,
                                              const AttentionBackwardOperands& backward_operands) {
  const PackedGradients sums = gradients_of(plan, operands, backward_operands);
  const std::span<const Tile> tiles = tiles_of(plan);
  const std::vector<RowCopy> key_rows = key_rows_of(tiles);
  const at::ScalarType dtype = operands.q.scalar_type();
  return {.dq = rows_of(sums.dq, query_rows_of(tiles), 0, dtype),
          .dk = rows_of(sums.dk, key_rows, 0, dtype),
          .dv = rows_of(sums.dv, key_rows, 0, dtype)};
}

std::int64_t MathBackend::head_groups(const TilePlan& plan, const AttentionOperands& like) const {
  return contributes_once(plan, like) && like.q.size(1) % 2 == 0 && like.k.size(1) % 2 == 0 ? 2 : 1;
}

std::int64_t MathBackend::pipeline_groups(const Pipeline& of) const {
  return results_ == Results::calls && of.heads % 2 == 0 && of.kv_heads % 2 == 0 ? 2 : 1;
}

void MathBackend::gradients_of_heads(const TilePlan& plan, const AttentionOperands& operands,
                                     const AttentionBackwardOperands& backward_operands,
                                     const PackedGradients& results) {
  const PackedGradients sums = gradients_of(plan, operands, backward_operands);
  results.dq.copy_(sums.dq);
  results.dk.copy_(sums.dk);
  results.dv.copy_(sums.dv);
}

std::unique_ptr<AttentionBackend> make_math_backend() {
  return std::make_unique<MathBackend>();
}

}  // namespace cp_pool
