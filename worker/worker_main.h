// A worker process from its command line to its exit code, for any case runner.
#pragma once

#include <string>
#include <vector>

#include "worker/case_runner.h"
#include "worker/fault.h"
#include "worker/protocol/environment.h"
#include "worker/rank_device.h"
#include "worker/startup_clock.h"

namespace cp_pool {

inline constexpr int kExitUsage = 2;

struct Options {
  std::vector<Fault> faults = {};  // those of --inject, then those of CP_POOL_INJECT
  bool rehearses = true;           // CaseRunner::rehearsals
  std::string case_file = {};      // empty: serve as a rank
};

// Runs the case of options.case_file, or serves as one rank of a group according to the environment. stdout_fd: where
// protocol lines are written; file descriptor 1 must already be stderr. Explains failures on stderr. The caller must
// end the process by _exit, because threads of the runner may still be at work.
int worker_main(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd);

// --- One rank of a worker group (rank_process.cpp) ---

// Returns the GPU of this process's rank. The first call, which serve_as_rank makes at the latest, chooses it and hides
// the others. Throws EnvironmentError.
const OwnGpu& own_gpu(const protocol::RankEnvironment& environment);

// Serves cases. Rank 0 serves until the end of its input, other ranks until rank 0 stops them or ends. The file
// descriptors are used by rank 0 only. Returns the exit code: 0 if every rank stopped on request. Throws
// ControlPlaneError, CommError.
int serve_as_rank(protocol::RankEnvironment environment, const Options& options, CaseRunner& runner,
                  StartupClock& clock, int stdin_fd, int stdout_fd);

}  // namespace cp_pool
