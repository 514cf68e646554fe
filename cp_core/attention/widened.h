// Widens head dimensions that a library's kernel does not support.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace cp_pool {

// Rounds up to a multiple of 8, since the kernels read vectors of 16 bytes.
inline std::int64_t rounded_head_dim(std::int64_t head_dim) {
  return (head_dim + 7) / 8 * 8;
}

// Appends columns of zeros to rows, so that they are [tokens, heads, head_dim]. Zero columns change neither scores nor
// the other columns of outputs and gradients. Returns the tensor itself if it has head_dim columns.
at::Tensor widened(const at::Tensor& rows, std::int64_t head_dim);

}  // namespace cp_pool
