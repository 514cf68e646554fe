// Merges attention over parts of the keys into attention over all keys, by each part's output and log-sum-exp.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "cp_core/layout.h"
#include "cp_core/partition.h"

namespace cp_pool {

// Merges rows `source` of the part into rows `target` of out and lse:
//   LSE = logaddexp(lse, part_lse)
//   out = out * exp(lse - LSE) + part_out * exp(part_lse - LSE)
//   lse = LSE
// It computes in fp32 and rounds to the dtype of out. The weight of a part whose lse is -inf is 0. Targets must be
// disjoint; other rows are untouched.
//   out       [tokens, heads, dim], fp32 or 16 bits
//   part_out  [part tokens, heads, dim], fp32 or 16 bits; 16-bit dtypes of out and part_out must be the same
//   lse       fp32 [heads, tokens]
//   part_lse  fp32 [heads, part tokens]
// All tensors are contiguous and on one device.
void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                   std::span<const RowCopy> rows);

// Adds the sink to the softmax of the given rows: one more logit of each head, without a value. sink: fp32 [heads];
// out: fp32. Computes LSE = logaddexp(lse, sink), out = out * exp(lse - LSE), lse = LSE.
void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows);

// Returns delta, the sum over dim of dout * out, as fp32 [heads, tokens]. out, dout: [tokens, heads, dim].
at::Tensor row_delta(const at::Tensor& out, const at::Tensor& dout);

// Returns the gradient of the sink from these rows, -sum exp(sink - lse) * delta, as fp32 [heads]. lse must include the
// sink.
at::Tensor sink_gradient(const at::Tensor& sink, const at::Tensor& lse, const at::Tensor& delta,
                         std::span<const RowRange> rows);

}  // namespace cp_pool
