#include "cp_core/attention/library_kernels.h"

#include <algorithm>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/constant_pad_nd.h>
#include <fmt/format.h>

namespace cp_pool {

std::string library_refusal(const Case& c, std::string_view library, std::int64_t largest_head_dim) {
  if (c.dtype == DType::fp32) {
    return fmt::format("{} computes in bf16 and fp16 only; this case is fp32", library);
  }
  if (c.softcap != 0) return fmt::format("{} is called without a softcap; this case has one", library);
  const std::int64_t dim = std::max(c.head_dim_qk, c.head_dim_v);
  if (dim > largest_head_dim) {
    return fmt::format("{} takes head dimensions up to {}; this case has {}", library, largest_head_dim, dim);
  }
  const cudaDeviceProp& device = *at::cuda::getCurrentDeviceProperties();
  if (device.major < 8) {
    return fmt::format("{} needs compute capability 8.0; this GPU has {}.{}", library, device.major, device.minor);
  }
  return {};
}

at::Tensor widened(const at::Tensor& rows, std::int64_t head_dim) {
  return rows.size(2) == head_dim ? rows : at::constant_pad_nd(rows, {0, head_dim - rows.size(2)});
}

}  // namespace cp_pool
