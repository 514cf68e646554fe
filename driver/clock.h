// The driver's own time. Deadlines, intervals and durations of a run are in it.
#pragma once

#include <chrono>

namespace cp_pool {

// Steady, and it stands still while the driver is stopped (Ctrl-Z, SIGSTOP), so that no deadline passes and no duration
// grows meanwhile. One thread reads it, which blocks SIGCONT (driver/pool/job_control.h); elsewhere it is steady_clock.
class Clock {
  // NOLINTBEGIN(readability-identifier-naming): the standard's names
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;
  // NOLINTEND(readability-identifier-naming)

  // A SIGCONT that is pending, and has not been handled, means that the driver was stopped since the last call: that
  // time is left out, if it is longer than kNoticed.
  static time_point now() noexcept;

  // Leaves out the time since the last call of now().
  static void leave_out_since_last_now() noexcept;

  // All that was left out so far.
  static duration left_out() noexcept;

  // How exactly the beginning of a stop is known that the driver could not foresee, if it calls now() twice as often.
  static constexpr std::chrono::milliseconds kNoticed{200};
};

}  // namespace cp_pool
