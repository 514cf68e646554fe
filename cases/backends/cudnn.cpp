#include "cases/backend_facts.h"

namespace cp_pool {

BackendFacts cudnn_facts() {
  return {.rounds_calls = true, .repeats_backward = false, .rehearsed = true};
}

}  // namespace cp_pool
