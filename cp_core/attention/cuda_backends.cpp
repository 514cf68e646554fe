#include "cp_core/attention/cuda_backends.h"

#include <array>
#include <cstddef>

namespace cp_pool {

std::unique_ptr<AttentionBackend> make_cuda_backend(Backend backend) {
  static constexpr std::array kMakers{
#define CP_POOL_BACKEND(identifier, name) &make_##identifier##_backend,
#include "cases/backends.def"
#undef CP_POOL_BACKEND
  };
  return kMakers.at(static_cast<std::size_t>(backend))();
}

}  // namespace cp_pool
