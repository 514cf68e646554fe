// One batch of tiles as one call of cuDNN: which graphs can compute it, and where the rows lie. Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "cp_core/attention/backend.h"
#include "cp_core/attention/cudnn/cudnn_graphs.h"
#include "cp_core/attention/tile_batches.h"

namespace cp_pool {

// The batch of one call. Buffers that the call fills have the tiles' rows one after the other.
class CudnnBatch {
 public:
  // operands: only sizes and dtype are read. Graphs have their head dimensions rounded up (widened.h). With a bias the
  // batch has one tile. Operands may be narrowed to some heads of their rows, if the batch is not ragged.
  CudnnBatch(TileBatch batch, const AttentionOperands& operands);

  // Descriptions that compute the batch, the best first: cuDNN may refuse the first.
  [[nodiscard]] std::vector<CudnnGraph> forward_graphs() const;
  [[nodiscard]] std::vector<CudnnGraph> backward_graphs(bool deterministic, bool dbias) const;

  [[nodiscard]] const TileBatch& tiles() const { return tiles_; }
  [[nodiscard]] bool ragged() const { return !uniform_; }
  // The tiles of a batch that is not ragged.
  [[nodiscard]] const UniformTiles& uniform() const { return *uniform_; }
  [[nodiscard]] std::int64_t q_rows() const { return lengths_.q.back(); }
  [[nodiscard]] std::int64_t k_rows() const { return lengths_.k.back(); }
  // False if the offsets of a ragged batch are more than int32 can hold.
  [[nodiscard]] bool offsets_fit() const;
  // Where the tiles' rows begin in buffers, and where the last ends.
  [[nodiscard]] const CumulativeLengths& lengths() const { return lengths_; }

 private:
  [[nodiscard]] CudnnGraph description() const;
  [[nodiscard]] std::vector<CudnnMask> masks() const;
  [[nodiscard]] std::vector<CudnnGraph> with_masks(const CudnnGraph& graph) const;

  TileBatch tiles_;
  CudnnGraph shape_;  // what the operands say
  CumulativeLengths lengths_;
  std::optional<UniformTiles> uniform_;
};

// The group in parts that cuDNN computes faster, or that it takes at all: a causal rectangle with more keys than
// queries is a full rectangle beside a causal square. Parts of one tile have the same query rows.
std::vector<TileGroup> cudnn_parts(const TileGroup& group, bool bias);

}  // namespace cp_pool
