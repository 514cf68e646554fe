#include "cp_core/attention/cuda_backends.h"

#include <fmt/format.h>

#include "cp_core/attention/math_backend.h"

namespace cp_pool {

std::unique_ptr<AttentionBackend> make_cuda_backend(Backend /*backend*/) {
  return std::make_unique<MathBackend>();
}

std::string cuda_backend_skip_reason(const Case& c) {
  if (c.backend == Backend::math) return {};
  return fmt::format("no {} backend on GPUs yet", to_string(c.backend));
}

}  // namespace cp_pool
