#include <cstdio>
#include <unistd.h>

#include "worker/cp_core_runner.h"
#include "worker/options.h"
#include "worker/startup_clock.h"
#include "worker/stdout_guard.h"
#include "worker/worker_main.h"

namespace cp_pool {
namespace {

int run(int argc, char** argv, StartupClock& clock) {
  const Options options = parse_options(argc, argv);
  if (options.exit_code) {
    // An error goes to stderr, because the driver shows the end of stderr.
    dprintf(*options.exit_code == 0 ? original_stdout() : STDERR_FILENO, "%s", options.message.c_str());
    return *options.exit_code;
  }
  static CpCoreRunner runner(options.cut);  // static: threads that prepare cases may still use it when the process ends
  return worker_main(options, runner, clock, original_stdout());
}

}  // namespace
}  // namespace cp_pool

int main(int argc, char** argv) {
  cp_pool::StartupClock clock;
  const int exit_code = cp_pool::run(argc, argv, clock);
  // Static destructors must not run, because threads may still be building plans. LibTorch's destructors would also
  // take a tenth of a second.
  std::fflush(nullptr);
  _exit(exit_code);
}
