// Where `cp-pool shell` runs its cases, so that their ranks stay warm: on a service that is there, or on one of its
// own.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/process/spawn.h"
#include "driver/process/unique_fd.h"

namespace cp_pool {

class ShellService {
 public:
  struct Options {
    std::optional<std::string> wanted;  // the one that has to be there
    std::vector<std::string> serve;  // options of cp-pool serve; if there are some, only a service of its own will do
  };

  explicit ShellService(Options options) : options_(std::move(options)) {}
  ShellService(const ShellService&) = delete;
  ShellService& operator=(const ShellService&) = delete;
  // Ends its own service, and waits until it has ended.
  ~ShellService();

  // The name of the service to be used now: the wanted one, whether it is there or not; the default one if it is there;
  // else one of its own, which is started if none lives. The kernel kills that with this process. Throws CommandError
  // (infra) if it does not start. Call it on the main thread.
  std::string name();

 private:
  void start();
  [[nodiscard]] bool own_lives() const;
  void wait_until_it_listens();  // throws CommandError (infra)
  void reap();

  Options options_;
  std::optional<SpawnedProcess> own_;
  UniqueFd own_stderr_;  // kept open, so that it can write there
};

}  // namespace cp_pool
