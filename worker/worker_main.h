// A worker process, but for what it computes: from its command line to its exit code.
#pragma once

#include "worker/case_runner.h"
#include "worker/options.h"
#include "worker/startup_clock.h"

namespace cp_pool {

// Runs the case of options.case_file, or serves as one rank of a group as the environment says. stdout_fd: where the
// protocol goes; fd 1 must be stderr by now. Explains on stderr what goes wrong. The caller then ends the process by
// _exit: threads of the runner may still be at work.
int worker_main(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd);

}  // namespace cp_pool
