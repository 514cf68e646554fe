// Ctrl-Z (SIGTSTP) stops a run as a whole: first the ranks, which are in process groups of their own and which a
// terminal's signal does not reach, then the driver itself. Stops that the driver cannot catch (SIGSTOP, SIGTTIN,
// SIGTTOU) leave the ranks alone; they are noticed when it goes on.
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
    std::function<void()> let_ranks_go_on;  // the driver was not stopped after all
    // The driver was stopped for so long, and goes on. Those ranks that it has stopped are still stopped.
    std::function<void(Clock::duration paused, bool ranks_stopped)> on_continued;
  };

  // Blocks SIGTSTP (unless it is ignored) and SIGCONT in this thread for as long as it lives. Throws std::system_error.
  JobControl(asio::io_context& io, Functions functions);
  JobControl(const JobControl&) = delete;
  JobControl& operator=(const JobControl&) = delete;
  ~JobControl();

  void start();
  void close();  // nothing of it keeps the io_context running

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
  Clock::duration told_;  // of Clock::left_out()
};

}  // namespace cp_pool
