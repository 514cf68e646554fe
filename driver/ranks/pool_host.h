// State that all pools of this process share, whichever run's cases they work on.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <sys/types.h>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include "driver/os/wakeup.h"

namespace cp_pool {

class ForkServer;

struct PoolHost {
  explicit PoolHost(asio::io_context& io_context) : io(io_context) {}

  asio::io_context& io;
  std::int64_t last_seq = 0;           // a seq is never used twice
  std::set<pid_t> ranks;               // processes of living pools, which only their pool may reap
  std::set<ForkServer*> fork_servers;  // servers that fork ranks

  // Reaps exited children that no pool waits for.
  void reap_strangers() const;

  // `pool` ends the wait of an existing pool.
  void add(Wakeup& pool) { pools_.insert(&pool); }
  void remove(Wakeup& pool);
  // Wakes every pool: a run was stopped, for example.
  void notify_all() {
    for (Wakeup* const pool : pools_) pool->notify();
  }
  // Ends every pool, then calls `then` from the event loop. Until then no pool may start.
  void pause(std::function<void()> then);
  [[nodiscard]] bool pausing() const { return static_cast<bool>(pausing_); }
  // For one coroutine at a time.
  asio::awaitable<void> end_of_pause() {
    while (pausing()) co_await resumed_.wait();
  }

 private:
  void finish_pause_soon();  // if every pool has ended

  std::set<Wakeup*> pools_;  // pools that exist
  Wakeup resumed_{io};
  std::function<void()> pausing_;  // the argument of pause() that has not been called yet
};

}  // namespace cp_pool
