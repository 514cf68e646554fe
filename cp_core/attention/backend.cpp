#include "cp_core/attention/backend.h"

#include <c10/util/Exception.h>

#include "cp_core/attention/math_backend.h"
#include "cp_core/cuda/cuda_part.h"

namespace cp_pool {

std::unique_ptr<AttentionBackend> make_backend(Backend backend, const at::Device& device) {
  if (device.is_cuda()) return cuda_part().make_backend(backend);
  TORCH_CHECK(device.is_cpu(), "no ", std::string(to_string(backend)), " backend for ", device);
  return std::make_unique<MathBackend>();
}

}  // namespace cp_pool
