#include "driver/pool/run_context.h"

#include "driver/pool/fork_server.h"
#include "driver/process/process_tree.h"

namespace cp_pool {

void RunContext::reap_strangers() const {
  if (fork_server != nullptr && fork_server->busy()) return;
  reap_adopted([this](pid_t pid) { return ranks.contains(pid); });
}

}  // namespace cp_pool
