#include "cases/backend_facts.h"

#include <array>
#include <cstddef>

namespace cp_pool {

const BackendFacts& facts_of(Backend backend) {
  static const BackendFacts cudnn{.rounds_calls = true, .repeats_backward = false, .rehearsed = true};
  static const BackendFacts flash{.rounds_calls = true, .repeats_backward = false, .rehearsed = false};
  // Its matrix products are those of cuBLAS, whose results repeat with the workspace that the worker sets.
  static const BackendFacts math{.rounds_calls = false, .repeats_backward = true, .rehearsed = true};
  static const std::array all{
#define CP_POOL_BACKEND(identifier, name) &(identifier),
#include "cases/backends.def"
#undef CP_POOL_BACKEND
  };
  return *all.at(static_cast<std::size_t>(backend));
}

bool promises_bits(const Case& c, bool on_gpu) {
  const Backend computes = on_gpu ? c.backend : Backend::math;
  return c.deterministic || !c.training || facts_of(computes).repeats_backward;
}

}  // namespace cp_pool
