// One rank of a worker group, from its environment variables to its exit code.
#pragma once

#include <vector>

#include "worker/case_runner.h"
#include "worker/fault.h"
#include "worker/protocol/environment.h"
#include "worker/rank_device.h"
#include "worker/startup_clock.h"

namespace cp_pool {

struct RankProcessConfig {
  protocol::RankEnvironment environment;
  std::vector<Fault> faults;
  bool rehearses = true;  // CaseRunner::rehearsals
  int stdin_fd = 0;       // used by rank 0 only
  int stdout_fd = 1;      // used by rank 0 only
};

// Returns the GPU of this process's rank. The first call, which serve_as_rank makes at the latest, chooses it and hides
// the others. Throws EnvironmentError.
const OwnGpu& own_gpu(const protocol::RankEnvironment& environment);

// Serves cases. Rank 0 serves until the end of its input, other ranks until rank 0 stops them or ends. Returns the exit
// code: 0 if every rank stopped on request. Throws ControlPlaneError, CommError.
int serve_as_rank(const RankProcessConfig& config, CaseRunner& runner, StartupClock& clock);

}  // namespace cp_pool
