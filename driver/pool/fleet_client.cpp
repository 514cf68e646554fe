#include "driver/pool/fleet_client.h"

#include <fmt/format.h>

namespace cp_pool {

void KeyPatience::note_start() {
  failed_starts_ = 0;
  last_start_tails_.clear();
}

void KeyPatience::note_failed_start(const StartFailure& failure) {
  if (given_up_) return;  // several pools that start at the same time fail for one reason
  ++failed_starts_;
  last_start_tails_ = failure.stderr_tails;
  if (failure.skip) {
    given_up_ = failure.retirement.detail;
    given_up_outcome_ = CaseOutcome::skip;
  } else if (failure.permanent || config_.max_failed_starts == 1) {
    another_start_may_help_ = !failure.permanent;
    given_up_ = fmt::format("the pool cannot start: {}", failure.retirement.detail);
  } else if (failed_starts_ == config_.max_failed_starts) {
    another_start_may_help_ = true;
    given_up_ = fmt::format("the pool failed to start {} times running: {}", failed_starts_, failure.retirement.detail);
  }
}

void KeyPatience::note_outcome(CaseOutcome outcome) {
  timeouts_ = outcome == CaseOutcome::timeout ? timeouts_ + 1 : 0;
  const int limit = config_.max_consecutive_timeouts;
  if (limit > 0 && timeouts_ >= limit && !given_up_) {
    given_up_ = fmt::format("{} cases running timed out (--max-consecutive-timeouts)", timeouts_);
  }
}

}  // namespace cp_pool
