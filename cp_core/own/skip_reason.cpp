#include "cases/comm_facts.h"
#include "cp_core/context_parallel/make_backend.h"
#include "cp_core/own/own_implementation.h"

namespace cp_pool {

std::string skip_reason(const Case& c, const at::Device& device) {
  if (std::string reason = heads_do_not_divide(c); !reason.empty()) return reason;
  return make_backend(c.backend, device)->refusal(c);
}

}  // namespace cp_pool
