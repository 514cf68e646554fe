// Runs a function in a process of its own, because the function may take long or crash, and must then be given up.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "cases/unique_fd.h"
#include "driver/os/spawn.h"

namespace cp_pool {

class ForkedHelper {
 public:
  // Forks a child that calls the function with a file descriptor to write to, and then exits. The child keeps none of
  // this process's descriptors except the standard ones, has a process group of its own, and is killed when this
  // process dies. To be called on the main thread. A lock that another thread holds at that moment stays locked in the
  // child for ever, except those of malloc and of streams; so no other thread may hold one that the function takes. The
  // driver's other threads, which send beats (driver/ranks/driver_socket.h), take their own mutex alone. Throws
  // std::system_error.
  explicit ForkedHelper(const std::function<void(int output)>& function);
  // Kills the child if it still runs, and reaps it. A child that is stuck in the kernel is left to reap_adopted
  // (process_tree.h), which must leave pid() alone until then.
  ~ForkedHelper();

  [[nodiscard]] pid_t pid() const { return pid_; }

  // Returns the read end of the child's output, which reaches end of file when the child has ended. May be called once.
  UniqueFd take_output() { return std::move(output_); }

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
};

struct Filtered {
  ExitStatus exit;
  std::string out = {};
  std::string err;
};

// Runs the program with `input` as its stdin, and waits until it has ended. env: added to this process's environment.
// To be called on the main thread. Throws SpawnError (spawn.h) if the program cannot be started, else
// std::system_error.
Filtered run_filter(const std::vector<std::string>& argv, const std::string& input,
                    std::vector<std::pair<std::string, std::string>> env = {});

}  // namespace cp_pool
