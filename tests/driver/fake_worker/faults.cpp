#include "tests/driver/fake_worker/faults.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

namespace cp_pool::fake {

namespace {

void ignore_polite_signals() {
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGUSR2}) ::signal(signal, SIG_IGN);
}

// Leaves a grandchild of the driver in a session of its own: no signal to the rank's process group reaches it, and it
// holds the rank's pipes open.
void leave_setsid_grandchild() {
  if (::fork() != 0) return;
  ::setsid();
  ignore_polite_signals();
  hang();
}

// Leaves a process whose parent ends at once and which has closed the streams that it inherited, as daemons do.
void leave_daemon() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    leave_setsid_grandchild();
    _exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

// Leaves a grandchild without an environment, so that its environment does not show which pool started it.
void leave_grandchild_without_environment() {
  if (::fork() != 0) return;
  ::setsid();
  char name[] = "sleep";
  char time[] = "1000";
  char* const argv[] = {name, time, nullptr};
  char* const envp[] = {nullptr};
  ::execve("/bin/sleep", argv, envp);
  _exit(1);
}

// Leaves a zombie whose parent has ended without waiting for it.
void leave_dead_orphan() {
  int ends[2];
  if (::pipe(ends) < 0) _exit(9);
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t orphan = ::fork();
    if (orphan > 0) write_all(ends[1], std::to_string(orphan));
    _exit(0);
  }
  ::waitpid(child, nullptr, 0);
  char pid[32] = {};
  if (::read(ends[0], pid, sizeof pid - 1) < 0) _exit(9);
  for (const int end : ends) ::close(end);
  const std::string stat_file = std::string("/proc/") + pid + "/stat";
  for (std::string stat = ") S"; !stat.empty() && stat.find(") Z") == std::string::npos;) {
    std::ifstream in(stat_file);
    stat.assign(std::istreambuf_iterator<char>(in), {});
  }
}

void flood(int fd) {
  const std::string line = std::string(1023, 'x') + '\n';
  for (int i = 0; i < 10 * 1024; ++i) write_all(fd, line);
}

[[noreturn]] void die_of(int signal) {
  ::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);
  hang();
}

}  // namespace

void write_all(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EBADF) return;  // the rank has closed this stream and goes on without it
    if (n < 0 && errno != EINTR) _exit(9);
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

void hang() {
  for (;;) ::pause();
}

bool commit_fault(const std::string& kind) {
  static const std::map<std::string, std::function<void()>> faults{
      {"hang", hang},
      {"sigsegv", [] { die_of(SIGSEGV); }},
      {"sigabrt", [] { die_of(SIGABRT); }},
      {"sigkill", [] { die_of(SIGKILL); }},
      {"sigstop", [] { ::kill(::getpid(), SIGSTOP); }},
      {"exit0", [] { _exit(0); }},
      {"exit3", [] { _exit(3); }},
      {"ignore_sigterm",
       [] {
         ignore_polite_signals();
         hang();
       }},
      {"setsid_grandchild",
       [] {
         leave_setsid_grandchild();
         hang();
       }},
      {"setsid_grandchild_then_exit",
       [] {
         leave_setsid_grandchild();
         _exit(3);
       }},
      {"bare_grandchild",
       [] {
         leave_grandchild_without_environment();
         hang();
       }},
      {"daemon", leave_daemon},
      {"dead_orphan", leave_dead_orphan},
      {"chatter_stdout", [] { flood(STDOUT_FILENO); }},
      {"chatter_stderr", [] { flood(STDERR_FILENO); }},
      {"closes_stderr", [] { ::close(STDERR_FILENO); }},
      {"half_stderr_line",
       [] {
         write_all(STDERR_FILENO, "last words without a newline");
         hang();
       }},
  };
  const auto fault = faults.find(kind);
  if (fault == faults.end()) return false;
  fault->second();
  return true;
}

}  // namespace cp_pool::fake
