// Decides when a running case is reported (CaseProgress): when its phase changes, and while it is slow.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "driver/clock.h"

namespace cp_pool {

// Reads no clock: its user passes time points, so that a test can let hours pass.
class ProgressWatch {
 public:
  // slow_after: 0 = the case is never slow.
  ProgressWatch(Clock::time_point sent, std::chrono::milliseconds slow_after)
      : sent_(sent), told_(sent), slow_after_(slow_after) {}

  // The worker has reported this phase.
  void reach(const std::string& phase);
  [[nodiscard]] const std::string& phase() const { return phase_; }

  struct Due {
    bool slow = false;  // because it is slow, whatever its phase
  };
  // What is to be told now, which then counts as told; nullopt: nothing. A case is slow slow_after after it was sent,
  // and told so again at twice, four times, .. that time. A new phase is told a second after what was told before, so
  // that nothing is said of short cases.
  std::optional<Due> take(Clock::time_point now);

  // When to call take() next, as far as is known now; max() = nothing is to come.
  [[nodiscard]] Clock::time_point next() const;

 private:
  [[nodiscard]] Clock::time_point next_slow() const;

  Clock::time_point sent_;
  Clock::time_point told_;
  std::chrono::milliseconds slow_after_;  // of the next time
  std::string phase_;
  std::string told_phase_;
};

}  // namespace cp_pool
