// The driver's own clock. Deadlines, intervals and durations of a run are measured with it.
#pragma once

#include <chrono>

namespace cp_pool {

// A steady clock that stands still while the driver is stopped (Ctrl-Z, SIGSTOP), so that no deadline passes and no
// duration grows meanwhile. It may be read on one thread only, and that thread blocks SIGCONT during a run
// (driver/pool/job_control.h); a process that does not block SIGCONT gets the times of steady_clock.
class Clock {
  // NOLINTBEGIN(readability-identifier-naming): the standard's names
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;
  // NOLINTEND(readability-identifier-naming)

  // Returns the time. If a SIGCONT is pending and more than kNoticed has passed since the last call, the driver was
  // stopped in between, and the time since the last call is left out.
  static time_point now() noexcept;

  // Leaves out the time since the last call of now(), however short.
  static void leave_out_since_last_now() noexcept;

  // The sum of all time that was left out so far.
  static duration left_out() noexcept;

  // The shortest gap between two calls of now() that can be taken for a stop. While a run goes on, the driver calls
  // now() at least every kNoticed / 2, so the beginning of a stop that it could not foresee (SIGSTOP) is known that
  // exactly.
  static constexpr std::chrono::milliseconds kNoticed{200};
};

inline double in_ms(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace cp_pool
