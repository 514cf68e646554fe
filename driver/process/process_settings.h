// How the driver's process is set up while a run lasts.
#pragma once

#include <csignal>

namespace cp_pool {

// SIGPIPE ignored (a write to a dead rank is an error code), SIGCHLD at its default (else the kernel would reap ranks
// before their exit status is read), child subreaper. Restores what was before. Throws std::system_error.
class ProcessSettings {
 public:
  ProcessSettings();
  ProcessSettings(const ProcessSettings&) = delete;
  ProcessSettings& operator=(const ProcessSettings&) = delete;
  ~ProcessSettings();

 private:
  struct sigaction sigpipe_{};
  struct sigaction sigchld_{};
  bool subreaper_ = false;
};

}  // namespace cp_pool
