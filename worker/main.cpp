#include <cstdio>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/cp_core_runner.h"
#include "worker/options.h"
#include "worker/startup_clock.h"
#include "worker/worker_main.h"

namespace cp_pool {
namespace {

// The stdout that the process was started with, close-on-exec; -1 if it had none. Only the protocol is written there:
// file descriptor 1 is a copy of stderr, so that stray prints cannot get in between.
int private_stdout = -1;

// Runs before any other code of the process. Sanitizers are not set up yet, so this function has no instrumentation and
// makes no call that a sanitizer intercepts.
__attribute__((no_sanitize("address", "undefined", "thread"))) void move_stdout(int, char**, char**) {
  private_stdout = static_cast<int>(syscall(SYS_fcntl, STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  syscall(SYS_dup3, STDERR_FILENO, STDOUT_FILENO, 0);
}

int run(int argc, char** argv, StartupClock& clock) {
  const Options options = parse_options(argc, argv);
  if (options.exit_code) {
    // An error goes to stderr, because the driver shows the end of stderr.
    dprintf(*options.exit_code == 0 ? private_stdout : STDERR_FILENO, "%s", options.message.c_str());
    return *options.exit_code;
  }
  static CpCoreRunner runner(options.cut);  // static: threads that prepare cases may still use it when the process ends
  return worker_main(options, runner, clock, private_stdout);
}

}  // namespace
}  // namespace cp_pool

// NOLINTNEXTLINE(misc-definitions-in-headers): not a header
__attribute__((section(".preinit_array"), used)) static void (*const kMoveStdout)(int, char**,
                                                                                  char**) = cp_pool::move_stdout;

int main(int argc, char** argv) {
  cp_pool::StartupClock clock;
  const int exit_code = cp_pool::run(argc, argv, clock);
  // Static destructors must not run, because threads may still be building plans. LibTorch's destructors would also
  // take a tenth of a second.
  std::fflush(nullptr);
  _exit(exit_code);
}
