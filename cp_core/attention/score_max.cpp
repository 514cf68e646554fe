#include "cp_core/attention/score_max.h"

#include <ATen/Context.h>
#include <ATen/ops/maximum.h>

#include "cp_core/attention/tile_scores.h"

namespace cp_pool {
namespace {

constexpr std::size_t kScoreBytes = std::size_t{256} << 20U;

}  // namespace

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
