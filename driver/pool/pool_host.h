// What all pools of this process share, whoever's cases they run.
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
  std::vector<Wakeup*> wakeups;        // of every coroutine that must see that a run is stopped
  std::int64_t last_seq = 0;           // never repeats
  std::set<pid_t> ranks;               // of living pools: children that only their pool may reap
  std::set<Pool*> pools;               // those that live
  std::set<ForkServer*> fork_servers;  // that ranks are forked from

  // Takes away the zombies that no pool waits for.
  void reap_strangers() const;
  void notify_all() {
    for (Wakeup* wakeup : wakeups) wakeup->notify();
  }
};

}  // namespace cp_pool
