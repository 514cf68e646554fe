#include "worker/stdout_guard.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cp_pool {

namespace {

int private_stdout = -1;

// Runs before any other code of the process. Sanitizers are not set up yet, so this function has no instrumentation and
// makes no call that a sanitizer intercepts.
__attribute__((no_sanitize("address", "undefined", "thread"))) void move_stdout(int, char**, char**) {
  private_stdout = static_cast<int>(syscall(SYS_fcntl, STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  syscall(SYS_dup3, STDERR_FILENO, STDOUT_FILENO, 0);
}

}  // namespace

int original_stdout() {
  return private_stdout;
}

}  // namespace cp_pool

// NOLINTNEXTLINE(misc-definitions-in-headers): not a header
__attribute__((section(".preinit_array"), used)) static void (*const kMoveStdout)(int, char**,
                                                                                  char**) = cp_pool::move_stdout;
