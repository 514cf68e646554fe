#include "driver/process/exit_status.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <thread>

#include <fmt/format.h>

namespace cp_pool {

std::optional<ExitStatus> peek_exit(pid_t child) {
  siginfo_t info{};
  int rc = 0;
  do {
    rc = ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
  } while (rc < 0 && errno == EINTR);
  if (rc < 0 || info.si_pid == 0) return std::nullopt;
  return ExitStatus{info.si_code != CLD_EXITED, info.si_status};
}

bool reap_if_exited(pid_t child) {
  pid_t rc = 0;
  do {
    rc = ::waitpid(child, nullptr, WNOHANG);
  } while (rc < 0 && errno == EINTR);
  return rc != 0;
}

void reap_until(std::chrono::steady_clock::time_point limit, pid_t child) {
  while (!reap_if_exited(child) && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string describe(const ExitStatus& status) {
  if (!status.signaled) return fmt::format("exit {}", status.code);
  const char* const name = ::sigabbrev_np(status.code);
  if (name == nullptr) return fmt::format("signal {}", status.code);
  return fmt::format("signal {} (SIG{})", status.code, name);
}

}  // namespace cp_pool
