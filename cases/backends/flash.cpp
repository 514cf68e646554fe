#include "cases/backend_facts.h"

namespace cp_pool {

BackendFacts flash_facts() {
  return {.rounds_calls = true, .repeats_backward = false, .rehearsed = false};
}

}  // namespace cp_pool
