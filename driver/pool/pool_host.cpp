#include "driver/pool/pool_host.h"

#include <algorithm>

#include "driver/pool/fork_server.h"
#include "driver/process/process_tree.h"

namespace cp_pool {

void PoolHost::reap_strangers() const {
  if (std::ranges::any_of(fork_servers, [](const ForkServer* server) { return server->busy(); })) return;
  reap_adopted([this](pid_t pid) { return ranks.contains(pid); });
}

}  // namespace cp_pool
