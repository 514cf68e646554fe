#include "cp_core/attention/cuda_backends.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include "cp_core/attention/cudnn/cudnn_backend.h"
#include "cp_core/attention/flash/flash_backend.h"
#include "cp_core/attention/math/math_backend.h"

namespace cp_pool {
namespace {

// Cases that both libraries refuse.
std::string library_skip_reason(const Case& c, std::string_view library, std::int64_t largest_head_dim) {
  if (c.dtype == DType::fp32) {
    return fmt::format("{} computes in bf16 and fp16 only; this case is fp32", library);
  }
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

std::string flash_skip_reason(const Case& c) {
  if (c.bias) return fmt::format("FlashAttention takes no bias; this case has one of shape {}", to_string(*c.bias));
  return library_skip_reason(c, "FlashAttention", FlashBackend::kLargestHeadDim);
}

std::string cudnn_skip_reason(const Case& c) {
  return library_skip_reason(c, "cuDNN's fused attention", CudnnBackend::kLargestHeadDim);
}

}  // namespace

std::unique_ptr<AttentionBackend> make_cuda_backend(Backend backend) {
  switch (backend) {
    case Backend::math:
      return std::make_unique<MathBackend>();
    case Backend::flash:
      return std::make_unique<FlashBackend>();
    case Backend::cudnn:
      return std::make_unique<CudnnBackend>();
  }
  throw std::invalid_argument("unknown backend");
}

std::string cuda_backend_skip_reason(const Case& c) {
  switch (c.backend) {
    case Backend::math:
      return {};
    case Backend::flash:
      return flash_skip_reason(c);
    case Backend::cudnn:
      return cudnn_skip_reason(c);
  }
  throw std::invalid_argument("unknown backend");
}

}  // namespace cp_pool
