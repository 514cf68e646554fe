// Merges attention over parts of the keys: the softmax over all keys, from each part's output and log-sum-exp.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "cp_core/layout.h"
#include "cp_core/partition.h"

namespace cp_pool {

// out: [tokens, heads, dim], fp32, or of the part's dtype; part_out: [part tokens, heads, dim], fp32, bf16 or fp16;
// lse: fp32 [heads, tokens], part_lse: fp32 [heads, part tokens]; contiguous, on one device. Rows `source` of the part
// are merged into rows `target`: LSE = logaddexp(lse, part_lse), out = out * exp(lse - LSE) + part_out * exp(part_lse -
// LSE), lse = LSE, in fp32, and rounded to the dtype of out; the weight of a part whose lse is -inf is 0. The targets
// are disjoint; other rows are untouched.
void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                   std::span<const RowCopy> rows);

// The same for rows that have one number in both: row r of the part is merged into row r.
void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                   std::span<const RowRange> rows);

// A sink is one more logit of each head that adds nothing to the output. sink: fp32 [heads]. For each row named:
// lse' = logaddexp(lse, sink), out = out * exp(lse - lse'), lse = lse'.
void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows);

// delta = sum over dim of dout * out, as fp32 [heads, tokens]. out, dout: [tokens, heads, dim] of one dtype.
at::Tensor row_delta(const at::Tensor& out, const at::Tensor& dout);

// The gradient of the sink from these rows: -sum exp(sink - lse) * delta, fp32 [heads]. lse has the sink in it.
at::Tensor sink_gradient(const at::Tensor& sink, const at::Tensor& lse, const at::Tensor& delta,
                         std::span<const RowRange> rows);

}  // namespace cp_pool
