// State that all pools of this process share, whichever run's cases they work on.
#pragma once

#include <cstdint>
#include <set>
#include <sys/types.h>
#include <vector>

#include <asio/io_context.hpp>

#include "driver/pool/wakeup.h"

namespace cp_pool {

class ForkServer;
class Pool;

struct PoolHost {
  explicit PoolHost(asio::io_context& io_context) : io(io_context) {}

  asio::io_context& io;
  std::vector<Wakeup*> wakeups;        // of all coroutines that must notice when a run is stopped
  std::int64_t last_seq = 0;           // a seq is never used twice
  std::set<pid_t> ranks;               // processes of living pools, which only their pool may reap
  std::set<Pool*> pools;               // pools that exist
  std::set<ForkServer*> fork_servers;  // servers that fork ranks

  // Reaps exited children that no pool waits for.
  void reap_strangers() const;
  void notify_all() {
    for (Wakeup* wakeup : wakeups) wakeup->notify();
  }
};

}  // namespace cp_pool
