#include "cp_core/attention/cudnn_backend.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cudnn_call.h"
#include "cp_core/attention/cudnn_lane.h"
#include "cp_core/attention/cudnn_plan_cache.h"
#include "cp_core/attention/score_max.h"
#include "cp_core/attention/tile_lanes.h"
#include "cp_core/attention/tile_rows.h"
#include "cp_core/attention/tile_scores.h"
#include "cp_core/attention/widened.h"

namespace cp_pool {
namespace {

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

// The first that cuDNN builds. Throws the refusals of all as one.
GraphPlan first_plan(const std::vector<CudnnGraph>& graphs) {
  std::string refusals;
  for (const CudnnGraph& graph : graphs) {
    try {
      return {.graph = graph, .plan = cudnn_plan(graph)};
    } catch (const BackendUnsupported& refusal) {
      refusals += refusals.empty() ? refusal.what() : fmt::format("; {}", refusal.what());
    }
  }
  throw BackendUnsupported(refusals);
}

using GraphsOf = std::vector<CudnnGraph> (*)(const CudnnLane&, bool dbias);

std::vector<CudnnGraph> forward_graphs(const CudnnLane& lane, bool /*dbias*/) {
  return lane.forward_graphs();
}
std::vector<CudnnGraph> backward_graphs(const CudnnLane& lane, bool dbias) {
  return lane.backward_graphs(at::globalContext().deterministicAlgorithms(), dbias);
}

// One tile a lane.
std::vector<Lane> single_tiles(const std::vector<Tile>& tiles) {
  std::vector<Lane> lanes;
  lanes.reserve(tiles.size());
  for (const Tile& tile : tiles) lanes.push_back({tile});
  return lanes;
}

// All plans are there before anything is launched. A ragged lane that cuDNN refuses is computed tile by tile.
std::vector<PlannedLane> plan_lanes(const TileGroup& group, const AttentionOperands& operands, GraphsOf graphs) {
  std::vector<PlannedLane> planned;
  const auto plan = [&](const Lane& tiles) {
    CudnnLane lane(tiles, operands);
    if (lane.ragged() && !lane.offsets_fit()) throw BackendUnsupported("ragged tensors of more than 2^31 elements");
    auto built = first_plan(graphs(lane, false));
    planned.push_back({.lane = std::move(lane), .plan = std::move(built)});
  };
  for (const Lane& tiles : split_by_keys(group.tiles)) {
    try {
      plan(tiles);
    } catch (const BackendUnsupported&) {
      if (tiles.size() == 1) throw;
      for (const Lane& tile : single_tiles(tiles)) plan(tile);
    }
  }
  return planned;
}

// --- tiles without a bias ---

void bind_operands(CudnnCall& call, const AttentionOperands& operands) {
  call.bind_queries(CudnnTensor::q, operands.q);
  call.bind_keys(CudnnTensor::k, operands.k);
  call.bind_keys(CudnnTensor::v, operands.v);
}

at::Tensor like_out(const AttentionOperands& operands) {
  // Only its sizes and options are used.
  return operands.q.narrow(2, 0, 1).expand({operands.q.size(0), operands.q.size(1), operands.v.size(2)});
}

void forward_call(CudnnCall& call, const AttentionOperands& operands, AttentionPartial& partial) {
  bind_operands(call, operands);
  const at::Tensor out = call.query_buffer(CudnnTensor::out, like_out(operands));
  const at::Tensor stats = call.stats_buffer(operands.q);
  call.execute(operands);
  cuda::put_partial(out, stats, call.stats_layout(operands.q.size(1)), call.q_rows(), partial);
}

// True if the buffer of a call has every row of `sum` in its place, with no more columns.
bool is_all_of(const std::vector<cuda::TileRows>& rows, const at::Tensor& buffer, const at::Tensor& sum) {
  return buffer.sizes() == sum.sizes() &&
         std::ranges::all_of(rows, [](const cuda::TileRows& range) { return range.packed == range.buffer; });
}

void backward_call(CudnnCall& call, const AttentionOperands& operands, const AttentionBackwardOperands& backward,
                   AttentionGradientSums& sums) {
  bind_operands(call, operands);
  call.bind_queries(CudnnTensor::out, backward.out);
  call.bind_queries(CudnnTensor::dout, backward.dout);
  at::Tensor stats = call.stats_buffer(operands.q);
  cuda::gather_statistic(backward.lse, call.q_rows(), call.stats_layout(operands.q.size(1)), stats);
  const at::Tensor dq = call.query_buffer(CudnnTensor::dq, operands.q);
  const at::Tensor dk = call.key_buffer(CudnnTensor::dk, operands.k);
  const at::Tensor dv = call.key_buffer(CudnnTensor::dv, operands.v);
  call.execute(operands);
  // The first that is added to nothing is the sum, if it has every row.
  if (sums.dq_empty && is_all_of(call.q_rows(), dq, sums.dq)) {
    sums.dq.copy_(dq);
    sums.dq_empty = false;
  } else {
    sums.fill_dq();
    cuda::add_rows(dq, call.q_rows(), sums.dq);
  }
  if (sums.dkv_empty && is_all_of(call.k_rows(), dk, sums.dk) && is_all_of(call.k_rows(), dv, sums.dv)) {
    sums.dk.copy_(dk);
    sums.dv.copy_(dv);
    sums.dkv_empty = false;
  } else {
    sums.fill_dkv();
    cuda::add_rows(dk, call.k_rows(), sums.dk);
    cuda::add_rows(dv, call.k_rows(), sums.dv);
  }
}

AttentionBackwardOperands widened_backward(const AttentionBackwardOperands& backward, std::int64_t head_dim_v) {
  AttentionBackwardOperands result = backward;
  result.dout = widened(backward.dout, head_dim_v);
  result.out = widened(backward.out, head_dim_v);
  return result;
}

// --- tiles with a bias: one call each, since each has a part of the bias of its own ---

// nullopt where cuDNN refuses.
std::optional<PlannedLane> plan_bias_tile(const Tile& tile, const AttentionOperands& operands, GraphsOf graphs,
                                          bool dbias) {
  if (tile.m == 1) return std::nullopt;
  CudnnLane lane({tile}, operands);
  try {
    auto plan = first_plan(graphs(lane, dbias));
    return PlannedLane{.lane = std::move(lane), .plan = std::move(plan)};
  } catch (const BackendUnsupported&) {
    return std::nullopt;
  }
}

TileGroup group_of(const Tile& tile) {
  return {.left = tile.left, .right = tile.right, .tiles = {tile}};
}

// [1, 1 or heads, m, n]
at::Tensor bias_part(const AttentionOperands& operands, const Tile& tile) {
  const at::Tensor part = bias_of_tile(operands.bias, operands.bias_rows, tile);
  return part.expand({part.size(0), tile.m, tile.n}).contiguous();
}

void add_dbias(const at::Tensor& dbias, const AttentionOperands& operands, const Tile& tile,
               AttentionGradientSums& sums) {
  at::Tensor target = bias_of_tile(sums.dbias, operands.bias_rows, tile);
  if (target.size(0) == 1) {
    target.add_(dbias.sum({0}, /*keepdim=*/true, at::kFloat));
  } else {
    target.add_(dbias);
  }
}

}  // namespace

void CudnnBackend::forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) {
  check_supported(operands);
  const AttentionOperands wide = widened_operands(operands);
  if (!operands.bias.defined()) {
    for (const PlannedLane& planned : plan_lanes(group, wide, forward_graphs)) {
      CudnnCall call(planned);
      forward_call(call, wide, partial);
    }
    if (partial.max_logit.defined()) raise_max_logit(group, operands, partial.max_logit);
    return;
  }
  for (const Tile& tile : group.tiles) {
    const auto planned = plan_bias_tile(tile, wide, forward_graphs, false);
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
                            const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums) {
  check_supported(operands);
  TORCH_CHECK(backward_operands.out.defined(), "the backward of cuDNN takes out");
  const AttentionOperands wide = widened_operands(operands);
  const AttentionBackwardOperands wide_backward = widened_backward(backward_operands, wide.v.size(2));
  if (!operands.bias.defined()) {
    for (const PlannedLane& planned : plan_lanes(group, wide, backward_graphs)) {
      CudnnCall call(planned);
      backward_call(call, wide, wide_backward, sums);
    }
    return;
  }
  for (const Tile& tile : group.tiles) {
    const auto planned = plan_bias_tile(tile, wide, backward_graphs, sums.dbias.defined());
    if (!planned) {
      sums.fill();
      math_.backward(group_of(tile), operands, backward_operands, sums);
      continue;
    }
    CudnnCall call(*planned);
    call.bind(CudnnTensor::bias, bias_part(wide, tile));
    at::Tensor dbias;
    if (sums.dbias.defined()) {
      dbias = at::zeros({wide.q.size(1), tile.m, tile.n}, wide.bias.options());
      call.bind(CudnnTensor::dbias, dbias);
    }
    backward_call(call, wide, wide_backward, sums);
    if (dbias.defined()) add_dbias(dbias, wide, tile, sums);
  }
}

// --- whole plans ---

namespace {

// Tiles that cover all rows of q and k, in order, each row of q with a key: one call without gaps, whose buffers are
// packed tensors.
bool is_whole(const TilePlan& plan, const AttentionOperands& operands) {
  if (plan.size() != 1 || operands.bias.defined()) return false;
  const std::vector<Tile>& tiles = plan.front().tiles;
  std::int64_t k_row = 0;
  for (const Tile& tile : tiles) {
    if (tile.k_row != k_row) return false;
    k_row += tile.n;
  }
  const bool packed = covers_queries(tiles, operands.q.size(0)) && k_row == operands.k.size(0);
  const bool as_is = rounded_head_dim(operands.q.size(2)) == operands.q.size(2) &&
                     rounded_head_dim(operands.v.size(2)) == operands.v.size(2);
  return packed && as_is && cudnn_parts(plan.front(), false).size() == 1;
}

// One lane; nothing where cuDNN takes less at a time.
std::optional<PlannedLane> plan_whole(const TilePlan& plan, const AttentionOperands& operands, GraphsOf graphs) {
  check_supported(operands);
  if (!is_whole(plan, operands)) return std::nullopt;
  std::vector<PlannedLane> planned = plan_lanes(plan.front(), operands, graphs);
  if (planned.size() != 1) return std::nullopt;
  return std::move(planned.front());
}

// stats of a whole plan, in the call's layout, as [heads, tokens].
at::Tensor by_head(const at::Tensor& stats, const CudnnLane& lane, std::int64_t heads) {
  if (lane.ragged()) return stats.view({lane.q_rows(), heads}).t().contiguous();
  const auto batch = static_cast<std::int64_t>(lane.tiles().size());
  return stats.view({batch, heads, lane.uniform().m}).transpose(0, 1).reshape({heads, lane.q_rows()});
}

}  // namespace

std::optional<WholeForward> CudnnBackend::forward_whole(const TilePlan& plan, const AttentionOperands& operands) {
  const auto planned = plan_whole(plan, operands, forward_graphs);
  if (!planned) return std::nullopt;
  CudnnCall call(*planned);
  bind_operands(call, operands);
  at::Tensor out = call.query_buffer(CudnnTensor::out, like_out(operands));
  const at::Tensor stats = call.stats_buffer(operands.q);
  call.execute(operands);
  return WholeForward{.out = std::move(out), .lse = by_head(stats, planned->lane, operands.q.size(1))};
}

std::optional<WholeGradients> CudnnBackend::backward_whole(const TilePlan& plan, const AttentionOperands& operands,
                                                           const AttentionBackwardOperands& backward_operands) {
  const auto planned = plan_whole(plan, operands, backward_graphs);
  if (!planned) return std::nullopt;
  CudnnCall call(*planned);
  bind_operands(call, operands);
  call.bind_queries(CudnnTensor::out, backward_operands.out);
  call.bind_queries(CudnnTensor::dout, backward_operands.dout);
  at::Tensor stats = call.stats_buffer(operands.q);
  cuda::gather_statistic(backward_operands.lse, call.q_rows(), call.stats_layout(operands.q.size(1)), stats);
  WholeGradients gradients{.dq = call.query_buffer(CudnnTensor::dq, operands.q),
                           .dk = call.key_buffer(CudnnTensor::dk, operands.k),
                           .dv = call.key_buffer(CudnnTensor::dv, operands.v)};
  call.execute(operands);
  return gradients;
}

std::vector<TileGroup> CudnnBackend::parts(const TileGroup& group, const AttentionOperands& operands) const {
  return cudnn_parts(group, operands.bias.defined());
}

// --- plans ahead of their calls ---

namespace {

// A plan takes cuDNN tens of milliseconds on one core.
constexpr std::size_t kPlanThreads = 8;

// What the calls for a plan of tiles depend on.
std::vector<std::int64_t> signature(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) {
  std::vector<std::int64_t> key{static_cast<std::int64_t>(pass), at::globalContext().deterministicAlgorithms() ? 1 : 0,
                                static_cast<std::int64_t>(like.q.scalar_type())};
  for (const at::Tensor& tensor : {like.q, like.k, like.v, like.bias}) {
    if (tensor.defined()) key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  for (const TilePlan& plan : plans) {
    for (const TileGroup& group : plan) {
      for (const Tile& tile : group.tiles) {
        key.insert(key.end(), {tile.q_row, tile.k_row, tile.m, tile.n, tile.left, tile.right});
      }
    }
  }
  return key;
}

// True once for each key, among the last some hundred.
bool first_time(std::vector<std::int64_t> key) {
  constexpr std::size_t kMostKeys = 512;
  static std::mutex mutex;
  static std::set<std::vector<std::int64_t>> seen;
  const std::lock_guard lock(mutex);
  if (seen.size() >= kMostKeys) seen.clear();
  return seen.insert(std::move(key)).second;
}

// The graphs of all calls that have no plan yet; each as the alternatives that first_plan takes.
std::vector<std::vector<CudnnGraph>> missing_graphs(std::span<const TilePlan> plans, const AttentionOperands& like,
                                                    Pass pass) {
  std::map<CudnnGraph, std::vector<CudnnGraph>> missing;
  const bool bias = like.bias.defined();
  const bool dbias = bias && like.bias.size(2) > 1;
  for (const TilePlan& plan : plans) {
    for (const TileGroup& group : plan) {
      for (const TileGroup& part : cudnn_parts(group, bias)) {
        for (const Lane& tiles : bias ? single_tiles(part.tiles) : split_by_keys(part.tiles)) {
          const CudnnLane lane(tiles, like);
          auto graphs = pass == Pass::forward ? forward_graphs(lane, false) : backward_graphs(lane, dbias);
          if (!cudnn_plan_is_known(graphs.front())) missing.emplace(graphs.front(), std::move(graphs));
        }
      }
    }
  }
  std::vector<std::vector<CudnnGraph>> result;
  for (auto& [first, graphs] : missing) result.push_back(std::move(graphs));
  return result;
}

// On this thread and others.
void build_at_once(const std::vector<std::vector<CudnnGraph>>& wanted) {
  std::atomic<std::size_t> next = 0;
  const auto build = [&wanted, &next, device = c10::cuda::current_device()] {
    c10::cuda::set_device(device);
    for (std::size_t i = next++; i < wanted.size(); i = next++) {
      try {
        (void)first_plan(wanted[i]);
      } catch (const std::exception&) {
        // The call meets it again: a refusal is remembered, and anything else is tried anew.
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(kPlanThreads, wanted.size()); ++i) threads.emplace_back(build);
  build();
}

}  // namespace

void CudnnBackend::get_ready(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass) {
  if (!first_time(signature(plans, like, pass))) return;
  const auto missing = missing_graphs(plans, like, pass);
  if (missing.size() > 1) build_at_once(missing);
}

void CudnnBackend::prepare(const TilePlan& plan, const AttentionOperands& like, bool training) {
  const auto build = [&](const CudnnLane& lane, GraphsOf graphs, bool dbias) {
    try {
      (void)first_plan(graphs(lane, dbias));
    } catch (const BackendUnsupported&) {
      // The cache remembers it.
    }
  };
  const bool bias = like.bias.defined();
  for (const TileGroup& group : plan) {
    for (const TileGroup& part : cudnn_parts(group, bias)) {
      for (const Lane& tiles : bias ? single_tiles(part.tiles) : split_by_keys(part.tiles)) {
        const CudnnLane lane(tiles, like);
        build(lane, forward_graphs, false);
        if (training) build(lane, backward_graphs, bias && like.bias.size(2) > 1);
      }
    }
  }
}

}  // namespace cp_pool
