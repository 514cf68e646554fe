#include "cp_core/thd/row_kernels.h"

#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include "cp_core/thd/row_launch.h"
#include "cp_core/thd/row_types.h"

namespace cp_pool::cuda {
namespace {

void check(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == at::kFloat,
              "contiguous fp32 on a GPU expected, not ", tensor.toString(), " on ", tensor.device());
}

DeviceRows device_rows(void* data, const at::Tensor& rows) {
  std::int64_t columns = 1;
  for (const std::int64_t size : rows.sizes().slice(2)) columns *= size;
  return {data, row_type(rows), rows.size(0), rows.size(1), columns};
}

DeviceRows target_rows(at::Tensor& rows) {
  return device_rows(rows.mutable_data_ptr(), rows);
}

// The kernels only read these rows.
DeviceRows source_rows(const at::Tensor& rows) {
  return device_rows(const_cast<void*>(rows.const_data_ptr()), rows);
}

}  // namespace

void copy_blocks(std::span<const BlockCopy> blocks) {
  launch_copy_blocks(blocks, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void sum_rows(at::Tensor& sum, bool empty, std::span<const SomeRows> parts, std::span<const RowSegment> segments) {
  std::vector<const void*> data;
  data.reserve(parts.size());
  for (const SomeRows& part : parts) {
    check_row_types(sum, part.tensor);
    data.push_back(part.tensor.const_data_ptr());
  }
  launch_sum_rows({.sum = target_rows(sum),
                   .empty = empty,
                   .part_type = row_type(parts.front().tensor),
                   .parts = data,
                   .segments = segments},
                  c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void merge_partial(at::Tensor& out, at::Tensor& lse, const at::Tensor& part_out, const at::Tensor& part_lse,
                   std::span<const RowCopy> rows) {
  for (const at::Tensor& tensor : {lse, part_lse}) check(tensor);
  check_row_types(out, part_out);
  launch_merge_partial(target_rows(out), lse.mutable_data_ptr<float>(), source_rows(part_out),
                       part_lse.const_data_ptr<float>(), rows, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void merge_sink(at::Tensor& out, at::Tensor& lse, const at::Tensor& sink, std::span<const RowRange> rows) {
  for (const at::Tensor& tensor : {out, lse, sink}) check(tensor);
  launch_merge_sink(target_rows(out), lse.mutable_data_ptr<float>(), sink.const_data_ptr<float>(), rows,
                    c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor sink_gradient(const at::Tensor& sink, const at::Tensor& lse, const at::Tensor& delta,
                         std::span<const RowRange> rows) {
  for (const at::Tensor& tensor : {sink, lse, delta}) check(tensor);
  const std::int64_t heads = lse.size(0);
  const at::Tensor gradient = at::zeros({heads}, sink.options());
  const at::Tensor sums = at::zeros({heads}, sink.options().dtype(at::kDouble));
  launch_sink_gradient({sink.const_data_ptr<float>(), lse.const_data_ptr<float>(), delta.const_data_ptr<float>(), heads,
                        lse.size(1), sums.mutable_data_ptr<double>(), gradient.mutable_data_ptr<float>()},
                       rows, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return gradient;
}

}  // namespace cp_pool::cuda
