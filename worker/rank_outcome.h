// What a rank reports of a case: the outcome, made of cp_core's report, its phases and failures, and the end of its
// stderr.
#pragma once

#include <chrono>
#include <cstdint>

#include "cp_core/run_case/run_case.h"
#include "worker/rank_messages.h"
#include "worker/runner_error.h"

namespace cp_pool {

// Moves the report into `outcome`, whose rank is already set. Of what `outcome` had reported before, the times of
// phases stay.
void take_report(RankReport report, RankOutcome& outcome);

// Times a phase that the case runner does not time.
class PhaseTimer {
 public:
  PhaseTimer(RankOutcome& outcome, const char* phase) : outcome_(outcome), phase_(phase) {}
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  ~PhaseTimer() {
    outcome_.timings_ms[phase_] = std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  RankOutcome& outcome_;
  const char* phase_;
  Clock::time_point start_ = Clock::now();
};

// The failure of a rank that has declined the case, while others have not or did so elsewhere. met: why the ranks did
// not meet.
Failure failure_alone(const Declined& declined, const Failure& met);

// Writes all of a case's stderr and a fence before the result: what a rank prints later belongs to the next case.
void write_fence(std::int64_t seq);

}  // namespace cp_pool
