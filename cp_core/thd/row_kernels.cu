#include <c10/util/Exception.h>

#include "cp_core/thd/row_kernels.h"

namespace cp_pool::cuda {

void copy_rows(const at::Tensor& /*source*/, at::Tensor& /*target*/, std::span<const RowCopy> /*copies*/) {
  TORCH_CHECK(false, "no kernel yet");
}
void merge_partial(at::Tensor& /*out*/, at::Tensor& /*lse*/, const at::Tensor& /*part_out*/,
                   const at::Tensor& /*part_lse*/, std::span<const RowRange> /*rows*/) {
  TORCH_CHECK(false, "no kernel yet");
}
void merge_sink(at::Tensor& /*out*/, at::Tensor& /*lse*/, const at::Tensor& /*sink*/,
                std::span<const RowRange> /*rows*/) {
  TORCH_CHECK(false, "no kernel yet");
}
at::Tensor sink_gradient(const at::Tensor& /*sink*/, const at::Tensor& /*lse*/, const at::Tensor& /*delta*/,
                         std::span<const RowRange> /*rows*/) {
  TORCH_CHECK(false, "no kernel yet");
}

}  // namespace cp_pool::cuda
