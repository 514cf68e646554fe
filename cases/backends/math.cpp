#include "cases/backend_facts.h"

namespace cp_pool {

// The math backend's matrix products are those of cuBLAS, whose results repeat with the workspace that the worker sets.
BackendFacts math_facts() {
  return {.rounds_calls = false, .repeats_backward = true, .rehearsed = true};
}

}  // namespace cp_pool
