// The attention backend of FlashAttention 2, through ATen: bf16 and fp16, head dimensions up to 256, no bias.
#pragma once

#include "cp_core/attention/backend.h"
#include "cp_core/attention/fast_backend.h"

namespace cp_pool {

// Gradients repeat bit by bit if at::globalContext().deterministicAlgorithms().
class FlashBackend final : public AttentionBackend, public FastBackend {
 public:
  void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) override;
  void backward(const TileGroup& group, const AttentionOperands& operands,
                const AttentionBackwardOperands& backward_operands, PackedGradients& sums) override;
  [[nodiscard]] std::string refusal(const Case& c) const override;
  FastBackend* fast() override { return this; }

  [[nodiscard]] bool computes_delta() const override { return true; }
  bool backward_pending(const TileGroup& group, const AttentionOperands& operands,
                        const AttentionBackwardOperands& backward_operands, PendingSums& pending) override;
};

}  // namespace cp_pool
