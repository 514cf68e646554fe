// Finds out how a child ended without reaping it. As long as it is a zombie, its pid and its process group cannot be
// reused, so the driver can kill the whole group first.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>

namespace cp_pool {

struct ExitStatus {
  bool signaled = false;
  int code = 0;  // exit code, or number of the signal
  bool operator==(const ExitStatus&) const = default;
};

// Returns how the child ended, without reaping it; nullopt while it runs.
std::optional<ExitStatus> peek_exit(pid_t child);

// Reaps the child. Returns false if it still runs.
bool reap_if_exited(pid_t child);

// Waits until a child that was killed has ended, and reaps it. Blocks until `limit` at most.
void reap_until(std::chrono::steady_clock::time_point limit, pid_t child);

// Returns "exit 3", "signal 11 (SIGSEGV)" and the like.
std::string describe(const ExitStatus& status);

}  // namespace cp_pool
