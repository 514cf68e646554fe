#include "cp_core/attention/cudnn/cudnn_batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cp_core/attention/library_kernels.h"

namespace cp_pool {
namespace {

// Sizes of ragged graphs are rounded up to multiples of these, so that cases of other lengths can use the same plans.
constexpr std::int64_t kRaggedLengthStep = 128;
constexpr std::int64_t kRaggedRowsStep = 1024;

// From this many queries on, cuDNN computes a causal rectangle faster in two parts, even with the merge of the parts.
constexpr std::int64_t kQueriesWorthCutting = 2048;

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

bool square(const Tile& tile) {
  return tile.m == tile.n;
}

bool causal(const Tile& tile) {
  return tile.left == kInfiniteWindow && tile.right == 0;
}

// Expresses the tile's window around the diagonal that starts at its top left. No bound is negative, since the first
// row sees a key and some row sees the first key.
CudnnMask top_left_mask(const Tile& tile) {
  CudnnMask mask;
  const std::int64_t shift = tile.n - tile.m;
  if (tile.right != kInfiniteWindow) mask.right_bound = tile.right + shift;
  if (tile.left != kInfiniteWindow) mask.left_bound = tile.left - shift + 1;
  // For a left bound cuDNN needs sequence lengths if there are more queries than keys.
  mask.padding = mask.left_bound && tile.m > tile.n;
  return mask;
}

CudnnMask bottom_right_mask(const Tile& tile) {
  CudnnMask mask;
  mask.bottom_right = true;
  if (tile.right != kInfiniteWindow) mask.right_bound = tile.right;
  if (tile.left != kInfiniteWindow) mask.left_bound = tile.left + 1;
  mask.padding = mask.left_bound || tile.m > tile.n;
  return mask;
}

}  // namespace

CudnnBatch::CudnnBatch(TileBatch batch, const AttentionOperands& operands)
    : tiles_(std::move(batch)), lengths_(compact_lengths(tiles_)), uniform_(uniform_tiles(tiles_)) {
  // For a graph of one query cuDNN takes another kernel, which has no backward; a ragged graph avoids it.
  if (uniform_ && uniform_->m == 1) uniform_.reset();
  shape_.dtype = operands.q.scalar_type();
  shape_.heads = operands.q.size(1);
  shape_.kv_heads = operands.k.size(1);
  shape_.head_dim_qk = rounded_head_dim(operands.q.size(2));
  shape_.head_dim_v = rounded_head_dim(operands.v.size(2));
  shape_.scale = operands.scale;
  if (operands.q.size(0) > 0 && operands.q.stride(0) != operands.q.size(1) * operands.q.size(2)) {
    shape_.row_heads = operands.q.stride(0) / operands.q.size(2);
    shape_.row_kv_heads = operands.k.stride(0) / operands.k.size(2);
  }
  if (operands.bias.defined()) shape_.bias_heads = operands.bias.size(1);
}

bool CudnnBatch::offsets_fit() const {
  const std::int64_t columns = std::max(shape_.head_dim_qk, shape_.head_dim_v);
  const std::int64_t elements = std::max(q_rows() * shape_.heads, k_rows() * shape_.kv_heads) * columns;
  return elements <= std::numeric_limits<std::int32_t>::max();
}

CudnnGraph CudnnBatch::description() const {
  CudnnGraph graph = shape_;
  graph.batch = static_cast<std::int64_t>(tiles_.size());
  graph.ragged = ragged();
  if (ragged()) {
    const LargestTile largest = largest_tile(tiles_);
    graph.m = rounded_up(largest.m, kRaggedLengthStep);
    graph.n = rounded_up(largest.n, kRaggedLengthStep);
  } else {
    graph.m = uniform_->m;
    graph.n = uniform_->n;
    const std::int64_t q_heads = graph.row_heads > 0 ? graph.row_heads : graph.heads;
    const std::int64_t kv_heads = graph.row_kv_heads > 0 ? graph.row_kv_heads : graph.kv_heads;
    graph.q_stride = uniform_->q_stride * q_heads * graph.head_dim_qk;
    graph.k_stride = uniform_->k_stride * kv_heads * graph.head_dim_qk;
    graph.v_stride = uniform_->k_stride * kv_heads * graph.head_dim_v;
  }
  return graph;
}

std::vector<CudnnMask> CudnnBatch::masks() const {
  const Tile& tile = tiles_.front();
  CudnnMask plain;
  plain.padding = ragged();
  if (tile.full()) return {plain};
  if (causal(tile) && std::ranges::all_of(tiles_, square)) {
    plain.right_bound = 0;
    return {plain};
  }
  CudnnMask bottom_right = bottom_right_mask(tile);
  if (ragged()) {
    bottom_right.padding = true;
    return {bottom_right};
  }
  // cuDNN refuses a bias with the diagonal at the bottom right.
  if (shape_.bias_heads > 0) return {top_left_mask(tile)};
  return {bottom_right, top_left_mask(tile)};
}

std::vector<CudnnGraph> CudnnBatch::with_masks(const CudnnGraph& graph) const {
  std::vector<CudnnGraph> graphs;
  for (const CudnnMask& mask : masks()) {
    graphs.push_back(graph);
    graphs.back().mask = mask;
  }
  return graphs;
}

std::vector<CudnnGraph> CudnnBatch::forward_graphs() const {
  return with_masks(description());
}

std::vector<CudnnGraph> CudnnBatch::backward_graphs(bool deterministic, bool dbias) const {
  CudnnGraph graph = description();
  graph.backward = true;
  graph.deterministic = deterministic;
  graph.dbias = dbias;
  if (ragged()) {
    graph.q_rows = rounded_up(q_rows(), kRaggedRowsStep);
    graph.k_rows = rounded_up(k_rows(), kRaggedRowsStep);
  } else {
    const std::int64_t row_heads = graph.row_heads > 0 ? graph.row_heads : graph.heads;
    graph.out_stride = uniform_->q_stride * row_heads * graph.head_dim_v;
  }
  return with_masks(graph);
}

std::vector<TileGroup> cudnn_parts(const TileGroup& group, bool bias) {
  const auto worth_cutting = [bias](const Tile& tile) {
    return causal(tile) && tile.m < tile.n && (bias || tile.m >= kQueriesWorthCutting);
  };
  if (std::ranges::none_of(group.tiles, worth_cutting)) return {group};
  TileGroup full;
  TileGroup rest{.left = group.left, .right = group.right, .tiles = {}};
  for (const Tile& tile : group.tiles) {
    if (!worth_cutting(tile)) {
      rest.tiles.push_back(tile);
      continue;
    }
    Tile before = tile;
    before.n = tile.n - tile.m;
    before.right = kInfiniteWindow;
    full.tiles.push_back(before);
    Tile diagonal = tile;
    diagonal.n = tile.m;
    diagonal.k_row += before.n;
    diagonal.k_position += before.n;
    rest.tiles.push_back(diagonal);
  }
  return {full, rest};
}

std::int64_t worthwhile_groups(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t most,
                               std::int64_t least_blocks) {
  for (std::int64_t groups = most; groups > 1; groups /= 2) {
    const bool divides = heads % groups == 0 && kv_heads % groups == 0;
    if (divides && rows / kRowsOfABlock * (heads / groups) >= least_blocks) return groups;
  }
  return 1;
}

}  // namespace cp_pool
