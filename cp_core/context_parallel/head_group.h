// Heads divided into groups of equal size, so that one group can be computed while another is transferred.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "cp_core/attention/backend.h"

namespace cp_pool {

// One of `count` groups.
struct HeadGroup {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

// A view of the group's heads. dim: the dimension of the heads.
at::Tensor narrowed(const at::Tensor& tensor, std::int64_t dim, HeadGroup group);

// The operands with q, k and v narrowed to the group's heads.
AttentionOperands narrowed(const AttentionOperands& operands, HeadGroup group);
// The same for the operands of the backward. delta and out may be undefined, and stay so.
AttentionBackwardOperands narrowed(const AttentionBackwardOperands& backward, HeadGroup group);

}  // namespace cp_pool
