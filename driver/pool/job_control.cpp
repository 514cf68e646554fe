#include "driver/pool/job_control.h"

#include <cerrno>
#include <csignal>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "driver/os/process_settings.h"

namespace cp_pool {

namespace {

sigset_t set_of(int signal) {
  sigset_t out;
  sigemptyset(&out);
  sigaddset(&out, signal);
  return out;
}

sigset_t signals_to_take() {
  sigset_t out = set_of(SIGCONT);
  // A shell without job control starts its children with SIGTSTP ignored.
  if (!is_ignored(SIGTSTP)) sigaddset(&out, SIGTSTP);
  return out;
}

// Stops this process. Returns true when the process goes on again, false if the kernel did not stop it: nobody could
// continue a process in an orphaned process group, as no shell has the job. A pending SIGCONT, which is blocked, tells
// the two apart, because a stop signal discards an earlier SIGCONT.
bool stop_this_process() {
  const sigset_t stop = set_of(SIGTSTP);
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);  // the default action, the stop, happens here
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

}  // namespace

JobControl::JobControl(PoolHost& host, OnContinued on_continued)
    : host_(host),
      on_continued_(std::move(on_continued)),
      signals_(signals_to_take()),
      signal_fd_(host.io),
      beat_(host.io),
      reported_(Clock::left_out()) {
  const int fd = ::signalfd(-1, &signals_, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  signal_fd_.assign(fd);
  pthread_sigmask(SIG_BLOCK, &signals_, &blocked_before_);
}

void JobControl::start() {
  wait_for_signal();
  // Setting the alarm reads the clock, often enough to know when a stop began (Clock::kNoticed).
  beat_.every(Clock::kNoticed / 2, [] {});
}

void JobControl::close() {
  asio::error_code ignored;  // the descriptor is only read
  signal_fd_.close(ignored);
  beat_.cancel();
}

void JobControl::wait_for_signal() {
  signal_fd_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code error) {
    if (error || !signal_fd_.is_open()) return;
    wait_for_signal();  // first, so that an exception of the run does not end the watch
    take_signals();
  });
}

void JobControl::take_signals() {
  signalfd_siginfo info{};
  while (signal_fd_.is_open() && ::read(signal_fd_.native_handle(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGTSTP) {
      host_.pause([this] { stop(); });
    } else if (const Clock::duration paused = unreported_pause(); paused > Clock::duration::zero()) {
      on_continued_(paused);
    }
  }
}

void JobControl::stop() {
  (void)Clock::now();
  if (stop_this_process()) Clock::leave_out_since_last_now();
  on_continued_(unreported_pause());
}

Clock::duration JobControl::unreported_pause() {
  (void)Clock::now();
  return Clock::left_out() - std::exchange(reported_, Clock::left_out());
}

}  // namespace cp_pool
