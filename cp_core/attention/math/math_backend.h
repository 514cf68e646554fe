// Attention written out in fp32 matrix products, for any dtype, mask, bias and head dimension.
#pragma once

#include "cp_core/attention/backend.h"

namespace cp_pool {

class MathBackend final : public AttentionBackend {
 public:
  // sums: all results are fp32. calls: where the operands have 16 bits and there is no bias, the backend also offers
  // results call by call (FastBackend), rounded to the dtype of q as a library's kernel rounds them.
  enum class Results { sums, calls };

  explicit MathBackend(Results results = Results::sums);
  void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) override;
  void backward(const TileGroup& group, const AttentionOperands& operands,
                const AttentionBackwardOperands& backward_operands, PendingSums& pending) override;

  std::vector<CalledForward> forward_calls(const TileGroup& part, const AttentionOperands& operands) override;
  [[nodiscard]] bool contributes_once(const TilePlan& plan, const AttentionOperands& like) const override;
  PackedGradients called_gradients(const TilePlan& plan, const AttentionOperands& operands,
                                   const AttentionBackwardOperands& backward_operands) override;
  [[nodiscard]] std::int64_t head_groups(const TilePlan& plan, const AttentionOperands& like) const override;
  void gradients_of_heads(const TilePlan& plan, const AttentionOperands& operands,
                          const AttentionBackwardOperands& backward_operands, const PackedGradients& results) override;
  [[nodiscard]] std::int64_t pipeline_groups(const Pipeline& of) const override;

 private:
  [[nodiscard]] bool gives_calls(const AttentionOperands& operands) const;
  // Computes the gradients of one plan in fp32.
  PackedGradients gradients_of(const TilePlan& plan, const AttentionOperands& operands,
                               const AttentionBackwardOperands& backward_operands);

  Results results_;
};

}  // namespace cp_pool
