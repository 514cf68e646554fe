#include "driver/pool/pool_key.h"

#include <utility>

#include <fmt/format.h>

namespace cp_pool {

PoolKey::PoolKey(const RunConfig& config, int world_size)
    : config_(config), world_size_(world_size), name_(fmt::format("{}/{}", config.device, world_size)) {}

void PoolKey::note_start() {
  failed_starts_ = 0;
  last_start_tails_.clear();
}

void PoolKey::note_failed_start(StartFailure failure) {
  if (given_up_) return;  // pools that were starting side by side fail for one reason
  ++failed_starts_;
  last_start_tails_ = std::move(failure.stderr_tails);
  if (failure.skip) {
    given_up_ = failure.retirement.detail;
    given_up_outcome_ = CaseOutcome::skip;
  } else if (failure.permanent || config_.max_failed_starts == 1) {
    given_up_ = fmt::format("the pool cannot start: {}", failure.retirement.detail);
  } else if (failed_starts_ == config_.max_failed_starts) {
    given_up_ = fmt::format("the pool failed to start {} times running: {}", failed_starts_, failure.retirement.detail);
  }
}

void PoolKey::note_outcome(CaseOutcome outcome) {
  timeouts_ = outcome == CaseOutcome::timeout ? timeouts_ + 1 : 0;
  const int limit = config_.max_consecutive_timeouts;
  if (limit > 0 && timeouts_ >= limit && !given_up_) {
    given_up_ = fmt::format("{} cases running timed out (--max-consecutive-timeouts)", timeouts_);
  }
}

}  // namespace cp_pool
