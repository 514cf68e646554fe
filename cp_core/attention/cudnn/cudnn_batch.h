// Describes one batch of tiles as one call of cuDNN: the graphs that can compute it, and the places of its rows. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "cp_core/attention/backend.h"
#include "cp_core/attention/cudnn/cudnn_graphs.h"
#include "cp_core/attention/tile_batches.h"

namespace cp_pool {

// The batch of one call. It is ragged if its tiles differ in size or distance. Buffers that the call fills have the
// tiles' rows one after the other.
class CudnnBatch {
 public:
  // operands: only sizes, strides and dtype are read. Graphs round their head dimensions up (library_kernels.h). With a
  // bias the batch must have one tile. If the batch is not ragged, operands may be packed tensors narrowed to some
  // heads.
  CudnnBatch(TileBatch batch, const AttentionOperands& operands);

  // Alternative descriptions of the batch, the best first, since cuDNN may refuse some.
  [[nodiscard]] std::vector<CudnnGraph> forward_graphs() const;
  [[nodiscard]] std::vector<CudnnGraph> backward_graphs(bool deterministic, bool dbias) const;

  [[nodiscard]] const TileBatch& tiles() const { return tiles_; }
  [[nodiscard]] bool ragged() const { return !uniform_; }
  // The tiles; only for a batch that is not ragged.
  [[nodiscard]] const UniformTiles& uniform() const { return *uniform_; }
  [[nodiscard]] std::int64_t q_rows() const { return lengths_.q.back(); }
  [[nodiscard]] std::int64_t k_rows() const { return lengths_.k.back(); }
  // False if offsets of a ragged batch would not fit into int32.
  [[nodiscard]] bool offsets_fit() const;
  // The first row of each tile in the buffers, and the end of the last.
  [[nodiscard]] const CumulativeLengths& lengths() const { return lengths_; }

 private:
  [[nodiscard]] CudnnGraph description() const;
  [[nodiscard]] std::vector<CudnnMask> masks() const;
  [[nodiscard]] std::vector<CudnnGraph> with_masks(const CudnnGraph& graph) const;

  TileBatch tiles_;
  CudnnGraph shape_;  // the members that the operands determine
  CumulativeLengths lengths_;
  std::optional<UniformTiles> uniform_;
};

// Cuts the group into parts that cuDNN computes faster, or that it does not refuse: a causal rectangle with more keys
// than queries becomes a full rectangle and a causal square, which have the same query rows.
std::vector<TileGroup> cudnn_parts(const TileGroup& group, bool bias);

// A group of heads must give the GPU enough thread blocks, of which each computes 128 rows of a head. An H100 or H200
// has 132 multiprocessors and needs at least one block for each, or three where the host launches every group by
// itself. These are constants, not queries of the device, since all ranks must choose the same number of groups.
inline constexpr std::int64_t kRowsOfABlock = 128;
inline constexpr std::int64_t kBlocksBesideOthers = 132;
inline constexpr std::int64_t kBlocksAlone = 3 * kBlocksBesideOthers;

// The largest number of groups, at most `most`, that divides heads and kv_heads and leaves each group enough blocks.
std::int64_t worthwhile_groups(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t most,
                               std::int64_t least_blocks);

}  // namespace cp_pool
