// The largest score of each head, for backends whose library does not return it.
#pragma once

#include "cp_core/attention/backend.h"

namespace cp_pool {

// Raises max_logit, fp32 [heads], to the largest score of the group's tiles, scale and bias included. Scores are fp32
// products of the operands, computed on their device in blocks of bounded size.
void raise_max_logit(const TileGroup& group, const AttentionOperands& operands, at::Tensor& max_logit);

}  // namespace cp_pool
