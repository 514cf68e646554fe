#include "python/extension/wait_breaker.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace cp_pool {
namespace {

// How long after the deadline connections are shut. Code that computes or sleeps is interrupted at the deadline, so it
// reports first, and peers that only wait for it see that a peer has failed.
constexpr std::chrono::milliseconds kHeadStart{50};
// How often code is interrupted again, since it may catch the exception or start another wait.
constexpr std::chrono::milliseconds kAgain{50};

}  // namespace

WaitBreaker::WaitBreaker(int interrupt_signal)
    : interrupt_signal_(interrupt_signal),
      python_thread_(static_cast<pid_t>(syscall(SYS_gettid))),
      thread_([this] { serve(); }) {}

WaitBreaker::~WaitBreaker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
}

void WaitBreaker::begin_case(Clock::time_point deadline) {
  bool sooner = false;
  {
    const std::lock_guard lock(mutex_);
    in_case_ = true;
    reason_ = Reason::none;
    deadline_ = deadline;
    sooner = deadline < wakes_;
  }
  if (sooner) changed_.notify_all();
}

void WaitBreaker::end_case() {
  const std::lock_guard lock(mutex_);
  in_case_ = false;
  reason_ = Reason::none;  // the adapter's setup, which may follow, is not to be freed
  deadline_ = Clock::time_point::max();
}

void WaitBreaker::abort() {
  {
    const std::lock_guard lock(mutex_);
    if (in_case_ && reason_ == Reason::none) reason_ = Reason::aborted;
  }
  sockets_.shut_others();
  interrupt_python();
  changed_.notify_all();
}

void WaitBreaker::interrupt_python() const {
  if (in_python_) syscall(SYS_tgkill, getpid(), python_thread_, interrupt_signal_);
}

void WaitBreaker::serve() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const auto now = Clock::now();
    if (in_case_ && reason_ != Reason::none) {
      const bool shuts = now >= deadline_ + kHeadStart || reason_ == Reason::aborted;
      lock.unlock();
      interrupt_python();
      if (shuts && in_python_) sockets_.shut_others();
      lock.lock();
      wakes_ = now + kAgain;
    } else if (in_case_ && now >= deadline_) {
      reason_ = Reason::timed_out;
      interrupt_python();
      wakes_ = now + kHeadStart;
    } else {
      wakes_ = deadline_;
    }
    if (wakes_ == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, wakes_);
    }
  }
}

}  // namespace cp_pool
