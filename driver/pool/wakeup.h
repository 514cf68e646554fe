// How the coroutine of a pool waits: for a change anywhere in what it looks after, or until a time.
#pragma once

#include <chrono>

#include <asio/awaitable.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

namespace cp_pool {

using Clock = std::chrono::steady_clock;

// One coroutine waits at a time. A notify() between two waits ends the next one at once, so that none is lost: look at
// the state, then wait.
class Wakeup {
 public:
  explicit Wakeup(asio::io_context& io) : timer_(io) {}

  void notify() {
    pending_ = true;
    timer_.cancel();
  }

  asio::awaitable<void> wait_until(Clock::time_point deadline) {
    if (!pending_) {
      timer_.expires_at(deadline);
      co_await timer_.async_wait(asio::experimental::as_tuple(asio::use_awaitable));
    }
    pending_ = false;
  }

  asio::awaitable<void> wait() { return wait_until(Clock::time_point::max()); }

 private:
  asio::steady_timer timer_;
  bool pending_ = false;
};

}  // namespace cp_pool
