// Lets the coroutine of a pool wait until something that it watches has changed, or until a given time, and lets
// functions be called at a given time.
#pragma once

#include <functional>
#include <memory>
#include <system_error>
#include <utility>

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

// Calls a function at a time, or at intervals. The function is not called any more once the alarm is cancelled, set
// anew or gone, not even if it was due already, as the handler of a timer may be.
class Alarm {
 public:
  explicit Alarm(asio::io_context& io) : timer_(io) {}

  void set_at(Clock::time_point time, std::function<void()> ring) {
    timer_.expires_at(time);
    set_ = std::make_shared<bool>(true);
    timer_.async_wait([ring = std::move(ring), set = std::weak_ptr<bool>(set_)](asio::error_code cancelled) {
      if (!cancelled && !set.expired()) ring();
    });
  }
  void set(Clock::duration from_now, std::function<void()> ring) { set_at(Clock::now() + from_now, std::move(ring)); }

  // Calls the function again and again, each time after this interval.
  void every(Clock::duration interval, std::function<void()> ring) {
    set(interval, [this, interval, ring = std::move(ring)] {
      every(interval, ring);  // first, so that a function that throws does not end the calls
      ring();
    });
  }

  void cancel() {
    set_.reset();
    timer_.cancel();
  }

 private:
  Timer timer_;
  std::shared_ptr<bool> set_;  // expired for waits that are over
};

}  // namespace cp_pool
