#include "cp_core/attention/cudnn/cudnn_backend.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/attention/cudnn/cudnn_batch.h"
#include "cp_core/attention/cudnn/cudnn_batch_plans.h"
#include "cp_core/attention/cudnn/cudnn_call.h"
#include "cp_core/attention/library_kernels.h"
#include "cp_core/attention/tile_batches.h"
#include "cp_core/attention/tile_rows.h"
#include "cp_core/attention/tile_scores.h"

namespace cp_pool {
namespace {

constexpr std::int64_t kLargestCudnnHeadDim = 256;

void check_supported(const AttentionOperands& operands) {
  const at::ScalarType dtype = operands.q.scalar_type();
  if (dtype != at::kBFloat16 && dtype != at::kHalf) {
    throw BackendUnsupported("cuDNN's fused attention computes in bf16 and fp16 only");
  }
}

AttentionOperands widened_operands(const AttentionOperands& operands) {
  AttentionOperands result = operands;
  result.q = widened(operands.q, rounded_head_dim(operands.q.size(2)));
  result.k = widened(operands.k, rounded_head_dim(operands.k.size(2)));
  result.v = widened(operands.v, rounded_head_dim(operands.v.size(2)));
  return result;
}

// --- tiles without a bias ---

void bind_operands(CudnnCall& call, const AttentionOperands& operands) {
  call.bind_queries(CudnnTensor::q, operands.q);
  call.bind_keys(CudnnTensor::k, operands.k);
  call.bind_keys(CudnnTensor::v, operands.v);
}

at::Tensor like_out(const AttentionOperands& operands) {
  // Callers use only the sizes and options of the result.
  return operands.q.narrow(2, 0, 1).expand({operands.q.size(0), operands.q.size(1), operands.v.size(2)});
}

// The outputs of one call, in buffers that have the rows of the tiles one after the other.
struct CallOutputs {
  at::Tensor out;
  at::Tensor stats;  // as CudnnCall::stats_layout says
};

CallOutputs outputs_of_call(CudnnCall& call, const AttentionOperands& operands) {
  bind_operands(call, operands);
  CallOutputs outputs{.out = call.query_buffer(CudnnTensor::out, like_out(operands)),
                      .stats = call.stats_buffer(operands.q)};
  call.execute(operands);
  return outputs;
}

void forward_call(CudnnCall& call, const AttentionOperands& operands, AttentionPartial& partial) {
  const auto [out, stats] = outputs_of_call(call, operands);
  cuda::put_partial(out, stats, call.stats_layout(operands.q.size(1)), call.q_rows(), partial);
}

// True if the buffer of a call has the shape of `sum` and every row at its place.
bool is_all_of(const std::vector<RowCopy>& rows, const at::Tensor& buffer, const at::Tensor& sum) {
  return buffer.sizes() == sum.sizes() &&
         std::ranges::all_of(rows, [](const RowCopy& range) { return range.source == range.target; });
}

constexpr std::uintptr_t kCudnnAlignment = 16;  // bytes; every pointer must be a multiple

void bind_backward(CudnnCall& call, const AttentionOperands& operands, const AttentionBackwardOperands& backward) {
  bind_operands(call, operands);
  call.bind_queries(CudnnTensor::out, backward.out);
  call.bind_queries(CudnnTensor::dout, backward.dout);
  const cuda::StatisticLayout layout = call.stats_layout(operands.q.size(1));
  const std::vector<RowCopy>& rows = call.q_rows();
  // The lse of a group of heads is a part of a larger tensor and may begin at an address that cuDNN cannot read.
  const bool aligned = reinterpret_cast<std::uintptr_t>(backward.lse.const_data_ptr()) % kCudnnAlignment == 0;
  const bool as_it_is = aligned && rows.size() == 1 && rows.front().source == 0 &&
                        rows.front().count == backward.lse.size(1) && layout.row_stride == 1 &&
                        backward.lse.is_contiguous();
  if (as_it_is) return call.bind(CudnnTensor::stats, backward.lse);
  at::Tensor stats = call.stats_buffer(operands.q);
  cuda::gather_statistic(backward.lse, rows, layout, stats);
}

// Returns the gradients of one call, in buffers that have the rows of the tiles one after the other.
PackedGradients gradients_of_call(CudnnCall& call, const AttentionOperands& operands,
                                  const AttentionBackwardOperands& backward) {
  bind_backward(call, operands, backward);
  PackedGradients gradients{.dq = call.query_buffer(CudnnTensor::dq, operands.q),
                            .dk = call.key_buffer(CudnnTensor::dk, operands.k),
                            .dv = call.key_buffer(CudnnTensor::dv, operands.v)};
  call.execute(operands);
  return gradients;
}

void backward_call(CudnnCall& call, const AttentionOperands& operands, const AttentionBackwardOperands& backward,
                   PendingSums& pending) {
  const PackedGradients gradients = gradients_of_call(call, operands, backward);
  pending.wait_for_turn();
  PackedGradients& sums = pending.sums;
  // The first contribution becomes the sum if it has every row.
  if (pending.dq_empty && is_all_of(call.q_rows(), gradients.dq, sums.dq)) {
    sums.dq.copy_(gradients.dq);
    pending.dq_empty = false;
  } else {
    pending.fill_dq();
    cuda::add_rows(gradients.dq, call.q_rows(), sums.dq);
  }
  if (pending.dkv_empty && is_all_of(call.k_rows(), gradients.dk, sums.dk) &&
      is_all_of(call.k_rows(), gradients.dv, sums.dv)) {
    sums.dk.copy_(gradients.dk);
    sums.dv.copy_(gradients.dv);
    pending.dkv_empty = false;
  } else {
    pending.fill_dkv();
    cuda::add_rows(gradients.dk, call.k_rows(), sums.dk);
    cuda::add_rows(gradients.dv, call.k_rows(), sums.dv);
  }
}

AttentionBackwardOperands widened_backward(const AttentionBackwardOperands& backward, std::int64_t head_dim_v) {
  AttentionBackwardOperands result = backward;
  result.dout = widened(backward.dout, head_dim_v);
  result.out = widened(backward.out, head_dim_v);
  return result;
}

// --- tiles with a bias: one call each, since each tile reads another part of the bias ---

TileGroup group_of(const Tile& tile) {
  return {.left = tile.left, .right = tile.right, .tiles = {tile}};
}

// [1, 1 or heads, m, n]
at::Tensor bias_part(const AttentionOperands& operands, const Tile& tile) {
  const at::Tensor part = bias_of_tile(operands.bias, operands.bias_rows, tile);
  return part.expand({part.size(0), tile.m, tile.n}).contiguous();
}

void add_dbias(const at::Tensor& dbias, const AttentionOperands& operands, const Tile& tile, PackedGradients& sums) {
  at::Tensor target = bias_of_tile(sums.dbias, operands.bias_rows, tile);
  if (target.size(0) == 1) {
    target.add_(dbias.sum({0}, /*keepdim=*/true, at::kFloat));
  } else {
    target.add_(dbias);
  }
}

}  // namespace

std::optional<PlannedBatch> CudnnBackend::plan_or_remark(const Tile& tile, const AttentionOperands& operands, Pass pass,
                                                         bool dbias) {
  try {
    return plan_bias_tile(tile, operands, pass, dbias);
  } catch (const BackendUnsupported& refusal) {
    refusals_.try_emplace(pass, refusal.what());
    return std::nullopt;
  }
}

std::string CudnnBackend::refusal(const Case& c) const {
  return library_refusal(c, "cuDNN's fused attention", kLargestCudnnHeadDim);
}

std::vector<std::string> CudnnBackend::remarks() const {
  std::vector<std::string> all;
  all.reserve(refusals_.size());
  for (const auto& [pass, refusal] : refusals_) {
    all.push_back(fmt::format("the math backend computed the {} of tiles with a bias that cuDNN refused: {}",
                              name_of(pass), refusal));
  }
  return all;
}

void CudnnBackend::forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) {
  check_supported(operands);
  const AttentionOperands wide = widened_operands(operands);
  if (!operands.bias.defined()) {
    for (const PlannedBatch& planned : plan_batches(group, wide, Pass::forward)) {
      CudnnCall call(planned);
      forward_call(call, wide, partial);
    }
    if (partial.max_logit.defined()) raise_max_logit(group, operands, partial.max_logit);
    return;
  }
  for (const Tile& tile : group.tiles) {
    const auto planned = plan_or_remark(tile, wide, Pass::forward, false);
    if (!planned) {
      math_.forward(group_of(tile), operands, partial);
      continue;
    }
    CudnnCall call(*planned);
    call.bind(CudnnTensor::bias, bias_part(wide, tile));
    forward_call(call, wide, partial);
    if (partial.max_logit.defined()) raise_max_logit(group_of(tile), operands, partial.max_logit);
  }
}

void CudnnBackend::backward(const TileGroup& group, const AttentionOperands& operands,
                            const AttentionBackwardOperands& backward_operands, PendingSums& pending) {
  check_supported(operands);
  TORCH_CHECK(backward_operands.out.defined(), "the backward of cuDNN needs the forward's out");
  const AttentionOperands wide = widened_operands(operands);
  const AttentionBackwardOperands wide_backward = widened_backward(backward_operands, wide.v.size(2));
  if (!operands.bias.defined()) {
    for (const PlannedBatch& planned : plan_batches(group, wide, Pass::backward)) {
      CudnnCall call(planned);
      backward_call(call, wide, wide_backward, pending);
    }
    return;
  }
  const bool has_dbias = pending.sums.dbias.defined();
  for (const Tile& tile : group.tiles) {
    const auto planned = plan_or_remark(tile, wide, Pass::backward, has_dbias);
    if (!planned) {
      math_.backward(group_of(tile), operands, backward_operands, pending);
      continue;
    }
    CudnnCall call(*planned);
    call.bind(CudnnTensor::bias, bias_part(wide, tile));
    at::Tensor dbias;
    if (has_dbias) {
      dbias = at::zeros({wide.q.size(1), tile.m, tile.n}, wide.bias.options());
      call.bind(CudnnTensor::dbias, dbias);
    }
    backward_call(call, wide, wide_backward, pending);
    if (has_dbias) add_dbias(dbias, wide, tile, pending.sums);
  }
}

// --- calls whose results are returned as the kernel rounded them ---

namespace {

// True if cuDNN takes the head dims as they are, without padding.
bool takes_head_dims(const AttentionOperands& operands) {
  return rounded_head_dim(operands.q.size(2)) == operands.q.size(2) &&
         rounded_head_dim(operands.v.size(2)) == operands.v.size(2);
}

// True if the plan's tiles cover all rows of q and k, in order and without gaps, so that the buffers of one call are
// packed tensors.
bool is_whole(const TilePlan& plan, const AttentionOperands& operands) {
  if (plan.size() != 1 || operands.bias.defined()) return false;
  const std::vector<Tile>& tiles = plan.front().tiles;
  const bool packed =
      all_in_place(query_rows_of(tiles), operands.q.size(0)) && all_in_place(key_rows_of(tiles), operands.k.size(0));
  return packed && takes_head_dims(operands) && cudnn_parts(plan.front(), false).size() == 1;
}

// Converts the stats of a call from the call's layout to [heads, rows].
at::Tensor by_head(const at::Tensor& stats, const CudnnBatch& batch, std::int64_t heads) {
  if (batch.ragged()) return stats.view({batch.q_rows(), heads}).t().contiguous();
  const auto items = static_cast<std::int64_t>(batch.tiles().size());
  return stats.view({items, heads, batch.uniform().m}).transpose(0, 1).reshape({heads, batch.q_rows()});
}

}  // namespace

std::vector<CalledForward> CudnnBackend::forward_calls(const TileGroup& part, const AttentionOperands& operands) {
  if (operands.bias.defined() || !takes_head_dims(operands)) return {};
  check_supported(operands);
  std::vector<CalledForward> results;
  for (const PlannedBatch& planned : plan_batches(part, operands, Pass::forward)) {
    CudnnCall call(planned);
    const auto [out, stats] = outputs_of_call(call, operands);
    results.push_back(
        {.out = out, .lse = by_head(stats, planned.batch, operands.q.size(1)), .rows = cuda::reversed(call.q_rows())});
  }
  return results;
}

bool CudnnBackend::contributes_once(const TilePlan& plan, const AttentionOperands& like) const {
  if (like.bias.defined() || !takes_head_dims(like) || !rows_are_disjoint(plan)) return false;
  return plan.empty() || cudnn_parts(plan.front(), false).size() == 1;
}

PackedGradients CudnnBackend::called_gradients(const TilePlan& plan, const AttentionOperands& operands,
                                               const AttentionBackwardOperands& backward_operands) {
  check_supported(operands);
  const auto no_rows = [](const at::Tensor& like) { return like.new_empty({0, like.size(1), like.size(2)}); };
  if (plan.empty()) return {.dq = no_rows(operands.q), .dk = no_rows(operands.k), .dv = no_rows(operands.v)};
  std::vector<PackedGradients> calls;
  for (const PlannedBatch& planned : plan_batches(plan.front(), operands, Pass::backward)) {
    CudnnCall call(planned);
    calls.push_back(gradients_of_call(call, operands, backward_operands));
  }
  if (calls.size() == 1) return std::move(calls.front());
  // Concatenates, in order, the gradients of a batch that cuDNN computed tile by tile.
  const auto joined = [&calls](at::Tensor PackedGradients::* tensor) {
    std::vector<at::Tensor> parts;
    parts.reserve(calls.size());
    for (const PackedGradients& call : calls) parts.push_back(call.*tensor);
    return at::cat(parts);
  };
  return {.dq = joined(&PackedGradients::dq), .dk = joined(&PackedGradients::dk), .dv = joined(&PackedGradients::dv)};
}

std::int64_t CudnnBackend::head_groups(const TilePlan& plan, const AttentionOperands& like) const {
  if (!is_whole(plan, like) || !contributes_once(plan, like) || !uniform_tiles(plan.front().tiles)) return 1;
  return worthwhile_groups(like.q.size(0), like.q.size(1), like.k.size(1), 2, kBlocksBesideOthers);
}

std::int64_t CudnnBackend::pipeline_groups(const Pipeline& of) const {
  return worthwhile_groups(of.q_rows, of.heads, of.kv_heads, 4, of.replayed ? kBlocksBesideOthers : kBlocksAlone);
}

void CudnnBackend::gradients_of_heads(const TilePlan& plan, const AttentionOperands& operands,
                                      const AttentionBackwardOperands& backward_operands,
                                      const PackedGradients& results) {
  check_supported(operands);
  TORCH_CHECK(is_whole(plan, operands), "some heads of a plan that is not one call of cuDNN");
  const std::vector<PlannedBatch> planned = plan_batches(plan.front(), operands, Pass::backward);
  TORCH_CHECK(planned.size() == 1, "some heads of a plan that is not one call of cuDNN");
  CudnnCall call(planned.front());
  bind_backward(call, operands, backward_operands);
  call.bind(CudnnTensor::dq, results.dq);
  call.bind(CudnnTensor::dk, results.dk);
  call.bind(CudnnTensor::dv, results.dv);
  call.execute(operands);
}

std::vector<TileGroup> CudnnBackend::parts(const TileGroup& group, const AttentionOperands& operands) const {
  return cudnn_parts(group, operands.bias.defined());
}

void CudnnBackend::get_ready(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) {
  build_plans_ahead(plans, like, pass);
}

std::vector<Preparation> CudnnBackend::preparations(std::span<const TilePlan> plans, const AttentionOperands& like,
                                                    Pass pass, bool deterministic) const {
  return plan_preparations(plans, like, pass, deterministic);
}

std::unique_ptr<AttentionBackend> make_cudnn_backend() {
  return std::make_unique<CudnnBackend>();
}

}  // namespace cp_pool
