// A worker process from its command line to its exit code, for any case runner.
#pragma once

#include <string>
#include <vector>

#include "worker/case_runner.h"
#include "worker/fault.h"
#include "worker/startup_clock.h"

namespace cp_pool {

inline constexpr int kExitUsage = 2;

struct Options {
  std::vector<Fault> faults;  // those of --inject, then those of CP_POOL_INJECT
  bool rehearses = true;      // CaseRunner::rehearsals
  std::string case_file;      // empty: serve as a rank
};

// Runs the case of options.case_file, or serves as one rank of a group according to the environment. stdout_fd: where
// protocol lines are written; file descriptor 1 must already be stderr. Explains failures on stderr. The caller must
// end the process by _exit, because threads of the runner may still be at work.
int worker_main(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd);

}  // namespace cp_pool
