#include "cp_core/verify/cuda_kernels.h"

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/verify/cuda_kernels_launch.h"

namespace cp_pool::verify {

void fill_nearly_normal_cuda(at::Tensor& values, std::uint64_t start) {
  const auto count = static_cast<std::uint64_t>(values.numel());
  if (count == 0) return;
  launch_fill_nearly_normal(values.mutable_data_ptr<float>(), count, start, c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

std::uint64_t sum_words_cuda(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 8 == 0,
              "sum_words needs a contiguous tensor at a multiple of 8 bytes");
  const at::Tensor total = at::zeros({1}, tensor.options().dtype(at::kLong));
  launch_sum_words(tensor.const_data_ptr(), tensor.nbytes(), total.mutable_data_ptr<std::int64_t>(),
                   c10::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return static_cast<std::uint64_t>(total.item<std::int64_t>());
}

}  // namespace cp_pool::verify
