// Starts one rank as a process of its own: own process group, clean signal state, no inherited descriptors, and killed
// by the kernel when the driver dies.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "driver/process/unique_fd.h"
#include "driver/surroundings.h"

namespace cp_pool {

struct SpawnRequest {
  std::vector<std::string> argv;                         // argv[0] is looked up in its PATH like execvp does
  std::vector<std::pair<std::string, std::string>> env;  // added to its environment, or replacing values of it
  std::vector<std::string> without = {};                 // variables of its environment that it does not get
  int stdin_fd = -1;                                     // becomes 0; -1: /dev/null. Not closed here
  int stdout_fd = -1;                                    // becomes 1; -1: /dev/null
  int stderr_fd = -1;                                    // becomes 2; -1: /dev/null
  int inherited_fd = -1;                                 // stays open under its own number (> 2); -1: none
  const Surroundings* surroundings = nullptr;            // nullptr: those of this process
};

// The process could not be started; error is the errno of the call that failed.
class SpawnError : public std::runtime_error {
 public:
  SpawnError(const std::string& what, int errno_value) : std::runtime_error(what), error(errno_value) {}
  int error;
  // A missing or unusable binary: trying again cannot help.
  [[nodiscard]] bool permanent() const;
};

struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd pidfd;  // readable once the process has exited
};

// Returns after the exec has succeeded. Call it on the main thread only: the parent-death signal follows the thread
// that forked. The caller reaps the process. Throws SpawnError; then no process is left.
SpawnedProcess spawn(const SpawnRequest& request);

// Where the program is found that these surroundings' PATH means; the name itself if it has a '/' or is not found.
std::string found_program(const std::string& name, const Surroundings& surroundings);

// Both ends close-on-exec. Throws std::system_error.
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

}  // namespace cp_pool
