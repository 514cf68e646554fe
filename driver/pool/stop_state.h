// Whether a run is stopped, and why.
#pragma once

#include <string>

#include "driver/run.h"

namespace cp_pool {

// Reasons of cases that did not end because the run was stopped.
inline constexpr const char* kInterrupted = "the run was interrupted";
inline std::string out_of_time(const RunConfig& config) {
  return "the run's " + std::to_string(config.global_timeout.count()) + " ms were over (--global-timeout)";
}

// Why no more cases may start. A flag that is set stays set.
struct StopState {
  bool interrupted = false;      // SIGINT, SIGTERM or SIGHUP: running cases end as cancelled
  bool kill_at_once = false;     // a second signal: ranks are killed without grace
  bool global_timeout = false;   // running cases end as timeout
  bool enough_failures = false;  // --max-fail: running cases go on
  bool service_ends = false;     // the service that runs the cases ends: running cases go on
  bool internal_error = false;   // an exception in the driver: running cases end as cancelled

  [[nodiscard]] bool no_new_cases() const { return abandon_running() || enough_failures || service_ends; }
  [[nodiscard]] bool abandon_running() const { return cancels() || global_timeout; }
  // Whether running cases end as cancelled.
  [[nodiscard]] bool cancels() const { return interrupted || internal_error; }
};

}  // namespace cp_pool
