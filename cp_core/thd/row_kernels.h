// The CUDA versions of copy_rows.h, sum_rows.h and merge_partial.h. They give the same bits as the CPU
// versions on the same input. Each is usually one launch, on the current stream. Row ranges are passed as kernel
// parameters, so nothing is uploaded or read back, and a CUDA graph can capture the launches.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "cp_core/partition.h"
#include "cp_core/thd/block_copy.h"
#include "cp_core/thd/row_segments.h"
#include "cp_core/thd/sum_rows.h"

namespace cp_pool {

// Functions of the CUDA part.
namespace cuda {

void copy_blocks(std::span<const BlockCopy> blocks);
// empty: whether the sum is overwritten instead of added to. parts: at least one, all of one dtype. segments: those of
// the parts' rows.
void sum_rows(at::Tensor& sum, bool empty, std::span<const SomeRows> parts, std::span<const RowSegment> segments);
void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                   std::span<const RowCopy> rows);
void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows);
at::Tensor sink_gradient(const at::Tensor& sink, const at::Tensor& lse, const at::Tensor& delta,
                         std::span<const RowRange> rows);

}  // namespace cuda

struct RowKernels {
  decltype(&cuda::copy_blocks) copy_blocks;
  decltype(&cuda::sum_rows) sum_rows;
  decltype(&cuda::merge_partial) merge_partial;
  decltype(&cuda::merge_sink) merge_sink;
  decltype(&cuda::sink_gradient) sink_gradient;
};

}  // namespace cp_pool
