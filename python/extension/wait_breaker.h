// Ends what an adapter's code waits for or computes when it should not go on: another rank has failed, or the case's
// time is over. Needs no GIL.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <sys/types.h>
#include <thread>

#include "python/extension/own_sockets.h"

namespace cp_pool {

class WaitBreaker {
 public:
  using Clock = std::chrono::steady_clock;
  // Why, as runner.py reads it.
  enum class Reason { none = 0, aborted = 1, timed_out = 2 };

  // Construct on the thread that calls Python. interrupt_signal: its Python handler raises an exception in the
  // adapter's code.
  explicit WaitBreaker(int interrupt_signal);
  WaitBreaker(const WaitBreaker&) = delete;
  WaitBreaker& operator=(const WaitBreaker&) = delete;
  ~WaitBreaker();

  // A case runs on the thread that calls Python, until end_case.
  void begin_case(Clock::time_point deadline);
  void end_case();
  // From any thread: another rank has failed, or this process is about to end.
  void abort();
  [[nodiscard]] Reason reason() const { return reason_; }

  // While it lives, the adapter's code may run on the constructing thread.
  class InPython {
   public:
    explicit InPython(WaitBreaker& breaker) : breaker_(breaker) { breaker_.in_python_ = true; }
    InPython(const InPython&) = delete;
    InPython& operator=(const InPython&) = delete;
    ~InPython() { breaker_.in_python_ = false; }

   private:
    WaitBreaker& breaker_;
  };

  OwnSockets& sockets() { return sockets_; }

 private:
  void serve();
  void interrupt_python() const;

  int interrupt_signal_;
  pid_t python_thread_;
  OwnSockets sockets_;
  std::atomic<bool> in_python_{false};
  std::atomic<Reason> reason_{Reason::none};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  bool in_case_ = false;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point wakes_ = Clock::time_point::max();  // when the thread looks again by itself
  std::jthread thread_;
};

}  // namespace cp_pool
