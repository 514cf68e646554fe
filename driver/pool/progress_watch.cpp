#include "driver/pool/progress_watch.h"

#include <algorithm>

namespace cp_pool {

namespace {

constexpr std::chrono::seconds kBetweenPhases{1};

}  // namespace

void ProgressWatch::reach(const std::string& phase) {
  phase_ = phase;
}

std::optional<ProgressWatch::Due> ProgressWatch::take(Clock::time_point now) {
  if (now < next()) return std::nullopt;
  const Due due{.slow = now >= next_slow()};
  while (now >= next_slow()) slow_after_ *= 2;
  told_ = now;
  told_phase_ = phase_;
  return due;
}

Clock::time_point ProgressWatch::next() const {
  return phase_ == told_phase_ ? next_slow() : std::min(told_ + kBetweenPhases, next_slow());
}

Clock::time_point ProgressWatch::next_slow() const {
  return slow_after_.count() > 0 ? sent_ + slow_after_ : Clock::time_point::max();
}

}  // namespace cp_pool
