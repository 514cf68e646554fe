#include "driver/ranks/pool_host.h"

#include <algorithm>
#include <utility>

#include <asio/post.hpp>

#include "driver/os/process_tree.h"
#include "driver/ranks/fork_server.h"

namespace cp_pool {

void PoolHost::reap_strangers() const {
  if (std::ranges::any_of(fork_servers, [](const ForkServer* server) { return server->busy(); })) return;
  reap_adopted([this](pid_t pid) { return ranks.contains(pid); });
}

void PoolHost::remove(Wakeup& pool) {
  pools_.erase(&pool);
  finish_pause_soon();
}

void PoolHost::pause(std::function<void()> then) {
  if (pausing()) return;
  pausing_ = std::move(then);
  notify_all();
  finish_pause_soon();
}

void PoolHost::finish_pause_soon() {
  if (!pausing() || !pools_.empty()) return;
  asio::post(io, [this] {
    if (pausing()) std::exchange(pausing_, nullptr)();
    resumed_.notify();
  });
}

}  // namespace cp_pool
