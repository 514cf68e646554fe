#include "cp_core/attention/cudnn_backend.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/attention/cudnn_lane.h"
#include "cp_core/attention/cudnn_plan_cache.h"
#include "cp_core/attention/score_max.h"
#include "cp_core/attention/tile_lanes.h"
#include "cp_core/attention/tile_rows.h"
#include "cp_core/attention/tile_scores.h"
#include "cp_core/attention/widened.h"
#include "cp_core/thd/row_kernels.h"

namespace cp_pool {
namespace {

using cuda::StatisticLayout;
using cuda::TileRows;

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

struct GraphPlan {
  CudnnGraph graph;
  std::shared_ptr<const CudnnPlan> plan;
};

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

struct PlannedLane {
  CudnnLane lane;
  GraphPlan plan;
};

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

// Zero rows behind gathered ones: a kernel may look at whole blocks, and 0 * NaN is NaN.
constexpr std::int64_t kRowsBehind = 256;

// What one call of a plan is given and gives.
class Call {
 public:
  explicit Call(const PlannedLane& planned) : lane_(planned.lane), plan_(planned.plan) {
    const CumulativeLengths& lengths = lane_.lengths();
    for (std::size_t i = 0; i < lane_.tiles().size(); ++i) {
      const Tile& tile = lane_.tiles()[i];
      q_rows.push_back({.packed = tile.q_row, .buffer = lengths.q[i], .count = tile.m});
      k_rows.push_back({.packed = tile.k_row, .buffer = lengths.k[i], .count = tile.n});
    }
  }

  void bind_queries(CudnnTensor name, const at::Tensor& rows) { bind_rows(name, rows, q_rows, query_span(tiles())); }
  void bind_keys(CudnnTensor name, const at::Tensor& rows) { bind_rows(name, rows, k_rows, key_span(tiles())); }
  void bind(CudnnTensor name, const at::Tensor& tensor) {
    pointers_[static_cast<std::int64_t>(name)] = tensor.mutable_data_ptr();
    held_.push_back(tensor);
  }

  // What the graph writes: the tiles' rows of q, or of k, one after the other.
  [[nodiscard]] at::Tensor query_buffer(CudnnTensor name, const at::Tensor& like) {
    return buffer(name, like, lane_.q_rows());
  }
  [[nodiscard]] at::Tensor key_buffer(CudnnTensor name, const at::Tensor& like) {
    return buffer(name, like, lane_.k_rows());
  }

  // fp32 [batch, heads, m], or [rows, heads] if ragged.
  [[nodiscard]] at::Tensor stats_buffer(const at::Tensor& q) {
    at::Tensor stats = at::empty({lane_.q_rows() * q.size(1)}, q.options().dtype(at::kFloat));
    bind(CudnnTensor::stats, stats);
    return stats;
  }
  [[nodiscard]] StatisticLayout stats_layout(std::int64_t heads) const {
    if (lane_.ragged()) return {.range_stride = 0, .head_stride = 1, .row_stride = heads};
    const std::int64_t m = lane_.uniform().m;
    return {.range_stride = (heads - 1) * m, .head_stride = m, .row_stride = 1};
  }

  void execute(const AttentionOperands& operands) {
    if (plan_.graph.mask.padding) bind_lengths(operands);
    const at::Tensor workspace = at::empty({plan_.plan->workspace_bytes()}, operands.q.options().dtype(at::kByte));
    plan_.plan->execute(pointers_, workspace.mutable_data_ptr());
  }

  std::vector<TileRows> q_rows;
  std::vector<TileRows> k_rows;

 private:
  [[nodiscard]] const Lane& tiles() const { return lane_.tiles(); }

  at::Tensor buffer(CudnnTensor name, const at::Tensor& like, std::int64_t rows) {
    at::Tensor result = at::empty({rows, like.size(1), like.size(2)}, like.options());
    bind(name, result);
    return result;
  }

  // Equal tiles are read where they lie. Ragged ones are read there if nothing lies between or behind them, else from
  // a copy without gaps: rows in gaps may be NaN, and a kernel may read them with weight 0.
  void bind_rows(CudnnTensor name, const at::Tensor& rows, const std::vector<TileRows>& ranges, const RowRange& span) {
    const TileRows& last = ranges.back();
    const bool gaps = last.buffer + last.count != span.count || span.row + span.count != rows.size(0);
    if (!lane_.ragged() || !gaps) return bind(name, rows.narrow(0, span.row, span.count));
    const std::int64_t count = last.buffer + last.count;
    at::Tensor gathered = at::empty({count + kRowsBehind, rows.size(1), rows.size(2)}, rows.options());
    gathered.narrow(0, count, kRowsBehind).zero_();
    std::vector<RowCopy> copies;
    copies.reserve(ranges.size());
    for (const TileRows& range : ranges) {
      copies.push_back({.source = range.packed, .target = range.buffer, .count = range.count});
    }
    cuda::copy_rows(rows, gathered, copies);
    bind(name, gathered);
  }

  // seq_len_* and offset_*, in one tensor: each begins at a multiple of 16 bytes.
  void bind_lengths(const AttentionOperands& operands) {
    const std::int64_t q_columns = operands.q.size(1) * operands.q.size(2);
    const std::int64_t out_columns = operands.q.size(1) * operands.v.size(2);
    const std::int64_t k_columns = operands.k.size(1) * operands.k.size(2);
    const std::int64_t v_columns = operands.k.size(1) * operands.v.size(2);
    const CumulativeLengths& lengths = lane_.lengths();
    std::vector<std::int32_t> values;
    std::vector<std::pair<CudnnTensor, std::size_t>> begins;
    const auto append = [&](CudnnTensor name, const std::vector<std::int32_t>& of_tensor) {
      begins.emplace_back(name, values.size());
      values.insert(values.end(), of_tensor.begin(), of_tensor.end());
      values.resize((values.size() + 3) / 4 * 4);
    };
    append(CudnnTensor::seq_len_q, differences(lengths.q));
    append(CudnnTensor::seq_len_kv, differences(lengths.k));
    if (lane_.ragged()) {
      append(CudnnTensor::offset_q, scaled(lengths.q, q_columns));
      append(CudnnTensor::offset_k, scaled(lengths.k, k_columns));
      append(CudnnTensor::offset_v, scaled(lengths.k, v_columns));
      append(CudnnTensor::offset_out, scaled(lengths.q, out_columns));
      append(CudnnTensor::offset_stats, scaled(lengths.q, operands.q.size(1)));
    }
    const at::Tensor ints = cuda::device_ints(values);
    for (const auto& [name, begin] : begins) {
      pointers_[static_cast<std::int64_t>(name)] = ints.mutable_data_ptr<std::int32_t>() + begin;
    }
    held_.push_back(ints);
  }

  static std::vector<std::int32_t> differences(const std::vector<std::int32_t>& sums) {
    std::vector<std::int32_t> result;
    for (std::size_t i = 1; i < sums.size(); ++i) result.push_back(sums[i] - sums[i - 1]);
    return result;
  }

  static std::vector<std::int32_t> scaled(const std::vector<std::int32_t>& rows, std::int64_t columns) {
    std::vector<std::int32_t> result;
    result.reserve(rows.size());
    for (const std::int32_t row : rows) {
      TORCH_CHECK(row * columns <= std::numeric_limits<std::int32_t>::max(),
                  "ragged tensors of more than 2^31 elements");
      result.push_back(static_cast<std::int32_t>(row * columns));
    }
    return result;
  }

  const CudnnLane& lane_;
  const GraphPlan& plan_;
  CudnnPlan::Pointers pointers_;
  std::vector<at::Tensor> held_;
};

// --- tiles without a bias ---

void bind_operands(Call& call, const AttentionOperands& operands) {
  call.bind_queries(CudnnTensor::q, operands.q);
  call.bind_keys(CudnnTensor::k, operands.k);
  call.bind_keys(CudnnTensor::v, operands.v);
}

at::Tensor like_out(const AttentionOperands& operands) {
  // Only its sizes and options are used.
  return operands.q.narrow(2, 0, 1).expand({operands.q.size(0), operands.q.size(1), operands.v.size(2)});
}

void forward_call(Call& call, const AttentionOperands& operands, AttentionPartial& partial) {
  bind_operands(call, operands);
  const at::Tensor out = call.query_buffer(CudnnTensor::out, like_out(operands));
  const at::Tensor stats = call.stats_buffer(operands.q);
  call.execute(operands);
  cuda::put_partial(out, stats, call.stats_layout(operands.q.size(1)), call.q_rows, partial);
}

void backward_call(Call& call, const AttentionOperands& operands, const AttentionBackwardOperands& backward,
                   AttentionGradientSums& sums) {
  bind_operands(call, operands);
  call.bind_queries(CudnnTensor::out, backward.out);
  call.bind_queries(CudnnTensor::dout, backward.dout);
  at::Tensor stats = call.stats_buffer(operands.q);
  cuda::gather_statistic(backward.lse, call.q_rows, call.stats_layout(operands.q.size(1)), stats);
  const at::Tensor dq = call.query_buffer(CudnnTensor::dq, operands.q);
  const at::Tensor dk = call.key_buffer(CudnnTensor::dk, operands.k);
  const at::Tensor dv = call.key_buffer(CudnnTensor::dv, operands.v);
  call.execute(operands);
  cuda::add_rows(dq, call.q_rows, sums.dq);
  cuda::add_rows(dk, call.k_rows, sums.dk);
  cuda::add_rows(dv, call.k_rows, sums.dv);
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
      Call call(planned);
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
    Call call(*planned);
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
      Call call(planned);
      backward_call(call, wide, wide_backward, sums);
    }
    return;
  }
  for (const Tile& tile : group.tiles) {
    const auto planned = plan_bias_tile(tile, wide, backward_graphs, sums.dbias.defined());
    if (!planned) {
      math_.backward(group_of(tile), operands, backward_operands, sums);
      continue;
    }
    Call call(*planned);
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

std::vector<TileGroup> CudnnBackend::parts(const TileGroup& group, const AttentionOperands& operands) const {
  return cudnn_parts(group, operands.bias.defined());
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
