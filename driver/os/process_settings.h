// The settings of the driver's process while a run lasts, and the signals that stop a run.
#pragma once

#include <chrono>
#include <csignal>

#include <asio/signal_set.hpp>

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
  bool subreaper_ = false;
};

// Whether the process ignores the signal, as SIGHUP under nohup.
bool is_ignored(int signal);

// Adds SIGHUP to the signals that stop a run or a service, unless the process ignores it.
void watch_for_hangup(asio::signal_set& signals);

// Two of these signals within this time count as one: timeout(1) and a terminal's hang-up send two at once.
inline constexpr std::chrono::milliseconds kSameSignal{100};

}  // namespace cp_pool
