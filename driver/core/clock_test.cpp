#include "driver/core/clock.h"

#include <csignal>
#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <gtest/gtest.h>

#include "driver/os/wakeup.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

// Busy-waits for `time` without reading Clock, as if the process had been stopped.
void let_pass(Clock::duration time) {
  const auto end = Steady::now() + time;
  while (Steady::now() < end) {
  }
}

// Blocks SIGCONT, as a run does.
class BlockedContinue {
 public:
  BlockedContinue() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, &before_);
  }
  BlockedContinue(const BlockedContinue&) = delete;
  BlockedContinue& operator=(const BlockedContinue&) = delete;
  ~BlockedContinue() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

TEST(Clock, GoesOnWithTheSteadyClock) {
  const auto before = Clock::now();
  const auto left_out = Clock::left_out();
  let_pass(2 * Clock::kNoticed);
  EXPECT_GE(Clock::now() - before, 2 * Clock::kNoticed);
  EXPECT_EQ(Clock::left_out(), left_out);
}

TEST(Clock, LeavesOutWhatItIsTold) {
  const auto start = Steady::now();
  const auto before = Clock::now();
  const auto left_out_before = Clock::left_out();
  let_pass(20ms);
  Clock::leave_out_since_last_now();
  const auto left_out = Clock::left_out() - left_out_before;
  EXPECT_GE(left_out, 20ms);
  const auto elapsed = Clock::now() - before;
  EXPECT_LE(elapsed, Steady::now() - start - left_out);
}

TEST(Clock, LeavesOutALongSilenceThatEndedWithSigcont) {
  const BlockedContinue blocked;
  const auto start = Steady::now();
  const auto before = Clock::now();
  const auto left_out_before = Clock::left_out();
  let_pass(Clock::kNoticed + 10ms);
  ::kill(::getpid(), SIGCONT);
  const auto elapsed = Clock::now() - before;
  const auto left_out = Clock::left_out() - left_out_before;
  EXPECT_GE(left_out, Clock::kNoticed + 10ms);
  EXPECT_LE(elapsed, Steady::now() - start - left_out);
}

TEST(Clock, ASigcontWithoutASilenceLeavesOutNothing) {
  // A busy machine may itself cause a gap of kNoticed. Then the test is repeated.
  for (Clock::duration silence = Clock::kNoticed; silence >= Clock::kNoticed;) {
    const BlockedContinue blocked;
    const auto start = Steady::now();
    (void)Clock::now();
    const auto left_out = Clock::left_out();
    ::kill(::getpid(), SIGCONT);
    (void)Clock::now();
    silence = Steady::now() - start;
    if (silence < Clock::kNoticed) {
      EXPECT_EQ(Clock::left_out(), left_out);
    }
  }
}

TEST(Wakeup, ItsDeadlineIsThatMuchLater) {
  asio::io_context io;
  Wakeup wakeup(io);
  const auto start = Steady::now();
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        const auto deadline = Clock::now() + 10ms;
        while (Clock::now() < deadline) co_await wakeup.wait_until(deadline);
      },
      asio::detached);
  io.poll();  // the coroutine now waits
  (void)Clock::now();
  let_pass(50ms);
  Clock::leave_out_since_last_now();
  io.run();
  EXPECT_GE(Steady::now() - start, 60ms);
}

}  // namespace
}  // namespace cp_pool
