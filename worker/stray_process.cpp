#include "worker/stray_process.h"

#include <csignal>
#include <initializer_list>
#include <sys/wait.h>
#include <unistd.h>

namespace cp_pool {

namespace {

// A child of a process with several threads may make only async-signal-safe calls.
[[noreturn]] void live_in_a_session_of_its_own() {
  // Signals are ignored before setsid, so that a process found in its own session is known to ignore them.
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGUSR2}) ::signal(signal, SIG_IGN);
  ::setsid();
  for (;;) ::pause();
}

}  // namespace

void leave_setsid_child() {
  if (::fork() == 0) live_in_a_session_of_its_own();
}

void leave_daemon() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    if (::fork() == 0) live_in_a_session_of_its_own();
    _exit(0);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

}  // namespace cp_pool
