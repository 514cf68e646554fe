// Attention written out in fp32 matrix products, for any dtype, mask, bias and head dimension.
#pragma once

#include "cp_core/attention/backend.h"

namespace cp_pool {

class MathBackend final : public AttentionBackend {
 public:
  MathBackend();
  void forward(const TileGroup& group, const AttentionOperands& operands, AttentionPartial& partial) override;
  void backward(const TileGroup& group, const AttentionOperands& operands,
                const AttentionBackwardOperands& backward_operands, AttentionGradientSums& sums) override;
};

}  // namespace cp_pool
