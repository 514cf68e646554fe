// The attention backend of FlashAttention 2, through ATen: bf16 and fp16, head dimensions up to 256, no bias.
#pragma once

#include "cp_core/attention/backend.h"

namespace cp_pool {

// Gradients repeat bit by bit if at::globalContext().deterministicAlgorithms().
class FlashBackend final : public AttentionBackend {
 public:
  void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) override;
  void backward(const TileGroup& group, const AttentionOperands& operands,
                const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums) override;
  [[nodiscard]] bool needs_out() const override { return true; }

  static constexpr std::int64_t kLargestHeadDim = 256;
};

}  // namespace cp_pool
