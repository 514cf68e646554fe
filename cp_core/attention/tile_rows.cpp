#include "cp_core/attention/tile_rows.h"

#include <array>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include "cp_core/thd/row_types.h"
#include "cp_core/thd/sum_rows.h"

namespace cp_pool::cuda {
namespace {

RowShape shape_of(const at::Tensor& buffer, const at::Tensor& packed) {
  TORCH_CHECK(buffer.is_contiguous() && buffer.dim() >= 3, "a contiguous buffer [..., heads, dim] expected");
  TORCH_CHECK(packed.is_contiguous() && packed.scalar_type() == at::kFloat, "contiguous fp32 rows expected");
  TORCH_CHECK(buffer.size(-2) == packed.size(1) && buffer.size(-1) >= packed.size(2), "rows of ", buffer.sizes(),
              " do not fit rows of ", packed.sizes());
  return {static_cast<int>(packed.size(1)), static_cast<int>(packed.size(2)), static_cast<int>(buffer.size(-1))};
}

}  // namespace

void put_partial(const at::Tensor& out, const at::Tensor& lse, const StatisticLayout& layout,
                 std::span<const RowCopy> rows, AttentionPartial& partial) {
  const RowShape shape = shape_of(out, partial.out);
  TORCH_CHECK(lse.scalar_type() == at::kFloat && lse.is_contiguous(), "contiguous fp32 lse expected");
  TORCH_CHECK(partial.lse.is_contiguous() && partial.lse.size(0) == shape.heads, "lse [heads, tokens] expected");
  const PutStatistic statistic{layout, lse.const_data_ptr<float>(), partial.lse.mutable_data_ptr<float>(),
                               partial.lse.size(1)};
  launch_put_partial(rows, shape, {out.const_data_ptr(), row_type(out)}, partial.out.mutable_data_ptr<float>(),
                     statistic, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void add_rows(const at::Tensor& buffer, std::span<const RowCopy> rows, at::Tensor& sum) {
  const at::Tensor part = buffer.flatten(0, -3).narrow(-1, 0, sum.size(2)).contiguous();
  cp_pool::add_rows(sum, std::array{SomeRows{.tensor = part, .rows = reversed({rows.begin(), rows.end()})}});
}

std::vector<RowCopy> reversed(std::vector<RowCopy> rows) {
  for (RowCopy& range : rows) std::swap(range.source, range.target);
  return rows;
}

void gather_statistic(const at::Tensor& statistic, std::span<const RowCopy> rows, const StatisticLayout& layout,
                      at::Tensor& buffer) {
  TORCH_CHECK(statistic.scalar_type() == at::kFloat && statistic.stride(1) == 1, "fp32 [heads, tokens] expected");
  TORCH_CHECK(buffer.scalar_type() == at::kFloat && buffer.is_contiguous(), "contiguous fp32 buffer expected");
  const GatheredStatistic gathered{layout, statistic.const_data_ptr<float>(), statistic.stride(0),
                                   buffer.mutable_data_ptr<float>(), static_cast<int>(statistic.size(0))};
  launch_gather_statistic(rows, gathered, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor device_ints(std::span<const std::int32_t> values) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  at::Tensor result =
      at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions(at::kInt).device(stream.device()));
  launch_write_ints(values, result.mutable_data_ptr<std::int32_t>(), stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}

}  // namespace cp_pool::cuda
