// What backends share whose kernels are those of a library: their refusal, and the widening of head dimensions that a
// kernel does not support.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "cases/case.h"

namespace cp_pool {

// Implements AttentionBackend::refusal for kernels that take bf16 and fp16, head dimensions up to largest_head_dim, and
// GPUs of compute capability 8.0 or more. library: the name with which the sentence begins.
std::string library_refusal(const Case& c, std::string_view library, std::int64_t largest_head_dim);

// Rounds up to a multiple of 8, since the kernels read vectors of 16 bytes.
inline std::int64_t rounded_head_dim(std::int64_t head_dim) {
  return (head_dim + 7) / 8 * 8;
}

// Appends columns of zeros to rows, so that they are [tokens, heads, head_dim]. Zero columns change neither scores nor
// the other columns of outputs and gradients. Returns the tensor itself if it has head_dim columns.
at::Tensor widened(const at::Tensor& rows, std::int64_t head_dim);

}  // namespace cp_pool
