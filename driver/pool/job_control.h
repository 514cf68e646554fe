// Stops a run as a whole at Ctrl-Z (SIGTSTP): first the ranks, then the driver itself. The ranks are in process groups
// of their own, which the terminal's signal does not reach. Stops that the driver cannot catch (SIGSTOP, SIGTTIN,
// SIGTTOU) leave the ranks running; the driver notices them when it goes on.
#pragma once

#include <functional>
#include <signal.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "driver/clock.h"
#include "driver/pool/wakeup.h"

namespace cp_pool {

class JobControl {
 public:
  struct Functions {
    std::function<void()> stop_ranks;
    std::function<void()> let_ranks_go_on;  // called when the driver was not stopped after all
    // Called when the driver goes on after a stop of `paused`. ranks_stopped: it had stopped the ranks, and they still
    // are.
    std::function<void(Clock::duration paused, bool ranks_stopped)> on_continued;
  };

  // Blocks SIGTSTP (unless it is ignored) and SIGCONT in this thread as long as the object lives. Throws
  // std::system_error.
  JobControl(asio::io_context& io, Functions functions);
  JobControl(const JobControl&) = delete;
  JobControl& operator=(const JobControl&) = delete;
  ~JobControl();

  void start();
  void close();  // cancels all waits, so that they do not keep the io_context running

 private:
  void wait_for_signal();
  void take_signals();
  void stop();
  void tell_if_stopped(bool ranks_stopped);
  void beat();

  Functions functions_;
  sigset_t signals_{};
  sigset_t blocked_before_{};
  asio::posix::stream_descriptor signal_fd_;
  Timer beat_;
  Clock::duration told_;  // the part of Clock::left_out() that was reported
};

}  // namespace cp_pool
