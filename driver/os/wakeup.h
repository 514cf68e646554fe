// Lets the coroutine of a pool wait until something that it watches has changed, or until a given time.
#pragma once

#include <system_error>

#include <asio/awaitable.hpp>
#include <asio/basic_waitable_timer.hpp>
#include <asio/io_context.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>

#include "driver/core/clock.h"

namespace cp_pool {

using Timer = asio::basic_waitable_timer<Clock>;

// One coroutine waits at a time. A notify() between two waits ends the next wait at once, so no notification is lost if
// the coroutine looks at the state first and then waits.
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
      std::error_code cancelled;  // whether it was cancelled or not, the wait is over
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    }
    pending_ = false;
  }

  asio::awaitable<void> wait() { return wait_until(Clock::time_point::max()); }

 private:
  Timer timer_;
  bool pending_ = false;
};

}  // namespace cp_pool
