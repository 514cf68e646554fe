// How a child ended, without taking it away: a process stays a zombie, so that its pid and its process group cannot be
// given to a stranger, until the driver has killed the whole group.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

namespace cp_pool {

struct ExitStatus {
  bool signaled = false;
  int code = 0;  // of exit(), or the signal
  bool operator==(const ExitStatus&) const = default;
};

// nullopt while it runs. The child stays waitable.
std::optional<ExitStatus> peek_exit(pid_t child);

// Takes the zombie away; false if the child still runs.
bool reap_if_exited(pid_t child);

// "exit 3", "signal 11 (SIGSEGV)"
std::string describe(const ExitStatus& status);

}  // namespace cp_pool
