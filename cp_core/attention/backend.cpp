#include "cp_core/attention/backend.h"

#include <c10/util/Exception.h>

#include "cp_core/attention/math_backend.h"

namespace cp_pool {

std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device) {
  TORCH_CHECK(device.is_cpu(), "no ", std::string(to_string(backend)), " backend for ", device);
  return std::make_unique<MathBackend>();
}

}  // namespace cp_pool
