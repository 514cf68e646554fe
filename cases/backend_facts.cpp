#include "cases/backend_facts.h"

#include <array>
#include <cstddef>

namespace cp_pool {

const BackendFacts& facts_of(Backend backend) {
  static const std::array all{
#define CP_POOL_BACKEND(identifier, name) identifier##_facts(),
#include "cases/backends.def"
#undef CP_POOL_BACKEND
  };
  return all.at(static_cast<std::size_t>(backend));
}

bool promises_bits(const Case& c, bool on_gpu) {
  const Backend computes = on_gpu ? c.backend : Backend::math;
  return c.deterministic || !c.training || facts_of(computes).repeats_backward;
}

}  // namespace cp_pool
