// What is reported of a running case (CaseProgress): when its phase has changed, when it is slow, and where its ranks
// stand.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Decides when a running case is reported. It reads no clock: the caller passes time points, so that a test can let
// hours pass.
class ProgressWatch {
 public:
  // slow_after: 0 = the case is never slow.
  ProgressWatch(Clock::time_point sent, std::chrono::milliseconds slow_after)
      : sent_(sent), reported_(sent), slow_after_(slow_after) {}

  // The worker has reported this phase.
  void reach(const std::string& phase) { phase_ = phase; }
  [[nodiscard]] const std::string& phase() const { return phase_; }

  // Returns whether the case is slow if it is to be reported now, and counts it as reported; nullopt: there is nothing
  // to report. A case is slow slow_after after it was sent, and again after 2, 4, 8, .. times that time. A new phase is
  // reported at the earliest one second after the last report, or after the case was sent, so that short cases are not
  // reported.
  std::optional<bool> take(Clock::time_point now);

  // When to call take() next; max(): nothing is due before a new phase is reached.
  [[nodiscard]] Clock::time_point next() const;

 private:
  [[nodiscard]] Clock::time_point next_slow() const {
    return slow_after_.count() > 0 ? sent_ + slow_after_ : Clock::time_point::max();
  }

  Clock::time_point sent_;
  Clock::time_point reported_;
  std::chrono::milliseconds slow_after_;  // when the case is reported as slow next
  std::string phase_;
  std::string reported_phase_;
};

// Returns the standings in the order of ranks, each rank at most once; empty if nothing is known. pong: nullopt if none
// came in time. A worker that reports phases does so for every rank that answers; a worker that does not may name rank
// 0 alone. reads_during_cases: rank 0 reads requests while a case runs, so without a pong it counts as silent.
std::vector<RankStanding> rank_standings(const std::optional<protocol::PongEvent>& pong, int world_size,
                                         bool reads_during_cases);

}  // namespace cp_pool
