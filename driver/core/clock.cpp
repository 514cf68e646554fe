#include "driver/core/clock.h"

#include <csignal>

namespace cp_pool {

namespace {

using Steady = std::chrono::steady_clock;

Steady::time_point last_now = Steady::now();
Clock::duration left_out_so_far{0};

bool continued_and_not_yet_handled() noexcept {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

}  // namespace

Clock::time_point Clock::now() noexcept {
  if (Steady::now() - last_now > kNoticed && continued_and_not_yet_handled()) leave_out_since_last_now();
  last_now = Steady::now();
  return time_point(last_now.time_since_epoch() - left_out_so_far);
}

void Clock::leave_out_since_last_now() noexcept {
  const Steady::time_point steady_now = Steady::now();
  left_out_so_far += steady_now - last_now;
  last_now = steady_now;
}

Clock::duration Clock::left_out() noexcept {
  return left_out_so_far;
}

}  // namespace cp_pool
