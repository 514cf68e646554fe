// State that all pools of this process share, whichever run's cases they work on.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <sys/types.h>
#include <utility>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include "driver/os/process_tree.h"
#include "driver/os/wakeup.h"

namespace cp_pool {

struct PoolHost {
  explicit PoolHost(asio::io_context& io_context) : io(io_context) {}

  asio::io_context& io;
  std::int64_t last_seq = 0;      // a seq is never used twice
  std::set<pid_t> ranks;          // processes of living pools, which only their pool may reap
  std::set<const void*> forking;  // fork servers that are forking a rank, whose process ID is not known yet

  // Reaps exited children that no pool waits for.
  void reap_strangers() const {
    if (forking.empty()) reap_adopted([this](pid_t pid) { return ranks.contains(pid); });
  }

  // `pool` ends the wait of an existing pool.
  void add(Wakeup& pool) { pools_.insert(&pool); }
  void remove(Wakeup& pool) {
    pools_.erase(&pool);
    finish_pause_soon();
  }
  // Wakes every pool: a run was stopped, for example.
  void notify_all() {
    for (Wakeup* const pool : pools_) pool->notify();
  }
  // Ends every pool, then calls `then` from the event loop. Until then no pool may start.
  void pause(std::function<void()> then) {
    if (pausing()) return;
    pausing_ = std::move(then);
    notify_all();
    finish_pause_soon();
  }
  [[nodiscard]] bool pausing() const { return static_cast<bool>(pausing_); }
  // For one coroutine at a time.
  asio::awaitable<void> end_of_pause() {
    while (pausing()) co_await resumed_.wait();
  }

 private:
  // If every pool has ended.
  void finish_pause_soon() {
    if (!pausing() || !pools_.empty()) return;
    asio::post(io, [this] {
      if (pausing()) std::exchange(pausing_, nullptr)();
      resumed_.notify();
    });
  }

  std::set<Wakeup*> pools_;  // pools that exist
  Wakeup resumed_{io};
  std::function<void()> pausing_;  // the argument of pause() that has not been called yet
};

}  // namespace cp_pool
