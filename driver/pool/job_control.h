// Stops a process with pools as a whole at Ctrl-Z (SIGTSTP): it ends the ranks, then stops itself. The ranks are in
// process groups of their own, which the terminal's signal does not reach. Stops that the driver cannot catch (SIGSTOP,
// SIGTTIN, SIGTTOU) leave the ranks running; the driver notices them when it goes on.
#pragma once

#include <functional>
#include <signal.h>

#include <asio/posix/stream_descriptor.hpp>

#include "driver/core/clock.h"
#include "driver/os/wakeup.h"
#include "driver/ranks/pool_host.h"

namespace cp_pool {

class JobControl {
 public:
  // Called when the process goes on after a stop. paused: 0 if the ranks were ended, but the process was not stopped.
  using OnContinued = std::function<void(Clock::duration paused)>;

  // Blocks SIGTSTP (unless it is ignored) and SIGCONT in this thread as long as the object lives. Throws
  // std::system_error.
  JobControl(PoolHost& host, OnContinued on_continued);
  ~JobControl() { pthread_sigmask(SIG_SETMASK, &blocked_before_, nullptr); }

  void start();
  void close();  // cancels all waits, so that they do not keep the io_context running

 private:
  void wait_for_signal();
  void take_signals();
  void stop();
  [[nodiscard]] Clock::duration unreported_pause();

  PoolHost& host_;
  OnContinued on_continued_;
  sigset_t signals_{};
  sigset_t blocked_before_{};
  asio::posix::stream_descriptor signal_fd_;
  Alarm beat_;
  Clock::duration reported_;  // the part of Clock::left_out() that was reported
};

}  // namespace cp_pool
