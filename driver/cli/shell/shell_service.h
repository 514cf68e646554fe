// The service on which `cp-pool shell` runs its cases, so that ranks stay warm: one that is there, or one that the
// shell starts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases/unique_fd.h"
#include "driver/os/spawn.h"

namespace cp_pool {

class ShellService {
 public:
  struct Options {
    std::optional<std::string> wanted;  // the service that has to be there
    std::vector<std::string> serve;  // options of cp-pool serve; if there are any, the shell uses a service of its own
  };

  explicit ShellService(Options options) : options_(std::move(options)) {}
  ShellService(const ShellService&) = delete;
  ShellService& operator=(const ShellService&) = delete;
  // Ends the shell's own service, and waits until it has ended.
  ~ShellService();

  // Returns the name of the service to use now. A wanted service is named whether it is there or not. Otherwise it is
  // the default service if that is there, or else the shell's own, which is started if it does not run. The kernel
  // kills the shell's own service with this process. Throws CommandError (infra) if the service does not start. To be
  // called on the main thread.
  std::string name();

 private:
  void start();
  void wait_for_listener();  // throws CommandError (infra)
  void reap();

  Options options_;
  std::optional<SpawnedProcess> own_;
  UniqueFd own_stderr_;  // kept open, so that the service can write to its stderr
};

}  // namespace cp_pool
