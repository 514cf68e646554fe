// Keeps a failure of a run as a capsule.
#pragma once

#include "driver/capsule/pool_history.h"
#include "driver/run.h"

namespace cp_pool {

// Writes the capsule of the failure into its folder in config.capsules, which must be set. Without a verdict it has all
// cases that its pool got before; with one, only those that the verdict shows to be needed. A later capsule of the
// failure replaces an earlier one. Throws std::runtime_error, which names the file and the cause.
void write_failure_capsule(const RunConfig& config, const PoolHistory& history, const HistoryOfFailure& failure,
                           const Verdict* verdict = nullptr);

}  // namespace cp_pool
