// The settings of the driver's process while a run lasts.
#pragma once

#include <csignal>

namespace cp_pool {

// Ignores SIGPIPE, so that writing to a dead rank gives an error code; sets SIGCHLD to its default, since otherwise the
// kernel might reap ranks before their exit status is read; and makes the process a child subreaper. The destructor
// restores the earlier settings. Throws std::system_error.
class ProcessSettings {
 public:
  ProcessSettings();
  ProcessSettings(const ProcessSettings&) = delete;
  ProcessSettings& operator=(const ProcessSettings&) = delete;
  ~ProcessSettings();

 private:
  struct sigaction sigpipe_{};
  struct sigaction sigchld_{};
  int subreaper_ = 0;  // whether the process was one before
};

// Whether the process ignores the signal, as SIGHUP under nohup.
bool is_ignored(int signal);

}  // namespace cp_pool
