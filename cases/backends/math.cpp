#include "cases/backend_facts.h"

namespace cp_pool {

// Matrix products of cuBLAS, which repeat with the workspace that the worker sets.
BackendFacts math_facts() {
  return {.rounds_calls = false, .repeats_backward = true, .rehearsed = true};
}

}  // namespace cp_pool
