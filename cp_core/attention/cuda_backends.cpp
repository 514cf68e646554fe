#include "cp_core/attention/cuda_backends.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include "cp_core/attention/flash_backend.h"
#include "cp_core/attention/math_backend.h"

namespace cp_pool {
namespace {

std::string flash_skip_reason(const Case& c) {
  if (c.dtype == DType::fp32) return "FlashAttention computes in bf16 and fp16 only; this case is fp32";
  if (c.bias) return fmt::format("FlashAttention takes no bias; this case has one of shape {}", to_string(*c.bias));
  const std::int64_t dim = std::max(c.head_dim_qk, c.head_dim_v);
  if (dim > FlashBackend::kLargestHeadDim) {
    return fmt::format("FlashAttention takes head dimensions up to {}; this case has {}", FlashBackend::kLargestHeadDim,
                       dim);
  }
  const cudaDeviceProp& device = *at::cuda::getCurrentDeviceProperties();
  if (device.major < 8) {
    return fmt::format("FlashAttention needs compute capability 8.0; this GPU has {}.{}", device.major, device.minor);
  }
  return {};
}

}  // namespace

std::unique_ptr<AttentionBackend> make_cuda_backend(Backend backend) {
  switch (backend) {
    case Backend::math:
      return std::make_unique<MathBackend>();
    case Backend::flash:
      return std::make_unique<FlashBackend>();
    case Backend::cudnn:
      break;
  }
  throw std::invalid_argument(fmt::format("no {} backend on GPUs yet", to_string(backend)));
}

std::string cuda_backend_skip_reason(const Case& c) {
  switch (c.backend) {
    case Backend::math:
      return {};
    case Backend::flash:
      return flash_skip_reason(c);
    case Backend::cudnn:
      break;
  }
  return fmt::format("no {} backend on GPUs yet", to_string(c.backend));
}

}  // namespace cp_pool
