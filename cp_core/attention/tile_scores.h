// Computes the scores of one tile in fp32, block by block. The math backend uses them, and so does raise_max_logit for
// backends whose library does not return the largest score of each head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/attention/backend.h"

namespace cp_pool {

// A part of a tile: some kv heads with all query heads that share them, some query rows, and all keys.
struct TileBlock {
  std::int64_t kv_head = 0;
  std::int64_t kv_heads = 0;
  std::int64_t row = 0;  // counted from the tile's first query row
  std::int64_t rows = 0;
};

// Divides the tile into blocks whose scores take at most `bytes`; a block has at least one row of one kv head.
std::vector<TileBlock> tile_blocks(const Tile& tile, const AttentionOperands& operands, std::size_t bytes);
// The tile as one block.
TileBlock whole_tile(const Tile& tile, const AttentionOperands& operands);

// The part of a bias, or of its gradient, that belongs to a tile, as a view: [1 or heads, 1 or m, n].
at::Tensor bias_of_tile(const at::Tensor& bias, BiasRows rows, const Tile& tile);

// The scores of one block. "Grouped" tensors have the query heads that share a kv head one after the other, so that one
// matrix product per kv head serves the whole group: fp32 [block.kv_heads, (heads / kv_heads) * rows, dim].
class BlockScores {
 public:
  BlockScores(const Tile& tile, const TileBlock& block, const AttentionOperands& operands);

  // The block's part of q, k or v, grouped.
  [[nodiscard]] const at::Tensor& q() const { return q_; }
  [[nodiscard]] const at::Tensor& k() const { return k_; }
  [[nodiscard]] at::Tensor keys(const at::Tensor& rows) const;

  // Grouped scores [block.kv_heads, (heads / kv_heads) * rows, n], -inf where the window hides a key.
  [[nodiscard]] at::Tensor& scores() { return scores_; }
  // The derivative of the scores by those before the softcap, grouped; undefined without a softcap.
  [[nodiscard]] at::Tensor slope() const { return tanh_.defined() ? tanh_.square().neg_().add_(1.0) : tanh_; }
  // Views a grouped tensor by query head: [block's heads, rows, columns].
  [[nodiscard]] at::Tensor by_head(const at::Tensor& grouped) const;

  // The block's part of a packed tensor [q tokens, heads, dim], grouped, and of a statistic [heads, q tokens], grouped
  // with one column.
  [[nodiscard]] at::Tensor queries(const at::Tensor& rows) const;
  [[nodiscard]] at::Tensor statistic(const at::Tensor& statistic) const;

  // Views of the block's part of a tensor: of [q tokens, heads, dim], of [kv tokens, kv_heads, dim], of [heads, q
  // tokens], of [heads], and of a bias as [1 or heads, 1 or rows, n].
  [[nodiscard]] at::Tensor query_view(const at::Tensor& rows) const;
  [[nodiscard]] at::Tensor key_view(const at::Tensor& rows) const;
  [[nodiscard]] at::Tensor statistic_view(const at::Tensor& statistic) const;
  [[nodiscard]] at::Tensor head_view(const at::Tensor& of_heads) const;
  [[nodiscard]] at::Tensor bias_view(const at::Tensor& bias) const;

  // Grouped tensors in the shape that query_view and key_view return.
  [[nodiscard]] at::Tensor as_queries(const at::Tensor& grouped) const;
  [[nodiscard]] at::Tensor as_keys(const at::Tensor& grouped) const;

 private:
  void cap();

  const Tile& tile_;
  const TileBlock& block_;
  const AttentionOperands& operands_;
  std::int64_t group_;  // query heads per kv head
  at::Tensor q_;
  at::Tensor k_;
  at::Tensor scores_;
  at::Tensor tanh_;  // of the scores divided by the softcap
};

// Raises max_logit, fp32 [heads], to the largest score of the group's tiles, scale and bias included. Scores are fp32
// products of the operands, computed on their device in blocks of bounded size.
void raise_max_logit(const TileGroup& group, const AttentionOperands& operands, at::Tensor& max_logit);

}  // namespace cp_pool
