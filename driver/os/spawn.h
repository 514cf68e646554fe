// Starts one rank as a process. The process has a process group of its own, default signal handling and no inherited
// file descriptors, and the kernel kills it when the driver dies.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "cases/unique_fd.h"
#include "driver/core/rank_environment.h"

namespace cp_pool {

struct SpawnRequest {
  std::vector<std::string> argv;  // argv[0] is looked up in the environment's PATH as execvp does
  // Variables that are added to its environment or replace others.
  std::vector<std::pair<std::string, std::string>> env = {};
  std::vector<std::string> without = {};        // names of variables that are removed from its environment
  int stdin_fd = -1;                            // becomes descriptor 0 of the process; -1: /dev/null. Not closed here
  int stdout_fd = -1;                           // becomes descriptor 1; -1: /dev/null
  int stderr_fd = -1;                           // becomes descriptor 2; -1: /dev/null
  int inherited_fd = -1;                        // stays open under its own number (> 2); -1: none
  const ProcessEnvironment* process = nullptr;  // working directory and environment; nullptr: those of this process
};

// The process could not be started; error is the errno of the call that failed.
class SpawnError : public std::runtime_error {
 public:
  SpawnError(const std::string& what, int errno_value) : std::runtime_error(what), error(errno_value) {}
  int error;
  // Whether the program is missing or cannot be executed, so that trying again cannot help.
  [[nodiscard]] bool permanent() const;
};

struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd pidfd;  // readable once the process has exited
};

// Starts the process and returns after its exec has succeeded. To be called on the main thread only, because the
// parent-death signal follows the thread that forked. The caller reaps the process. Throws SpawnError; then no process
// is left.
SpawnedProcess spawn(const SpawnRequest& request);

// Gives every signal its default action and blocks none, for a child after a fork. Async-signal-safe.
void reset_signals();

// Returns the path of the program, looked up in the PATH of this environment; the name itself if it has a '/' or is not
// found.
std::string found_program(const std::string& name, const ProcessEnvironment& process);

// A pipe; make_pipe() sets close-on-exec on both ends. Throws std::system_error.
struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
Pipe make_pipe();

// A socket on 127.0.0.1 that listens on a free port. Throws std::system_error.
struct ListeningSocket {
  UniqueFd fd;
  std::uint16_t port = 0;
};
ListeningSocket listen_on_loopback();

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
