// Heads in groups of equally many, so that one can be computed while another travels.
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

// The heads of a group, which are dimension `dim`.
at::Tensor narrowed(const at::Tensor& tensor, std::int64_t dim, HeadGroup group);

// q, k and v narrowed; the rest as it is.
AttentionOperands narrowed(const AttentionOperands& operands, HeadGroup group);
// delta and out may be undefined, and stay so.
AttentionBackwardOperands narrowed(const AttentionBackwardOperands& backward, HeadGroup group);

}  // namespace cp_pool
