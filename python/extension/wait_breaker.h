// Ends the waits and computations of an adapter's code if another rank has failed or the case's time is over. Does not
// need the GIL.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <sys/types.h>
#include <thread>

namespace cp_pool {

// Knows which sockets of the process are cp-pool's own, so that the connections of the adapter's libraries can be shut
// down while these libraries wait for them.
class OwnSockets {
 public:
  // Records every socket that is open now, except those recorded as others', as cp-pool's own, and with a listening
  // socket every connection that it will accept, since other ranks may still connect. Call this when cp-pool's
  // connections exist and the adapter's do not yet.
  void remember_own();
  // Records every other socket that is open now as one of the adapter's libraries, permanently.
  void remember_others();
  // Shuts both directions of the connections of others, so that code that waits for them gets an error. Leaves
  // listening sockets alone, since Gloo ends the process if one fails. May be called from any thread.
  void shut_others();

 private:
  std::mutex mutex_;
  std::set<ino_t> own_;
  std::set<std::uint16_t> own_ports_;  // of own listening sockets
  std::set<ino_t> others_;
};

class WaitBreaker {
 public:
  using Clock = std::chrono::steady_clock;
  // Why waits are being ended; runner.py reads these numbers.
  enum class Reason { none = 0, aborted = 1, timed_out = 2 };

  // Must be constructed on the thread that calls Python. interrupt_signal: a signal whose Python handler raises an
  // exception in the adapter's code.
  explicit WaitBreaker(int interrupt_signal);
  WaitBreaker(const WaitBreaker&) = delete;
  WaitBreaker& operator=(const WaitBreaker&) = delete;
  ~WaitBreaker();

  // Mark the beginning and the end of a case on the thread that calls Python. deadline: when waits are ended.
  void begin_case(Clock::time_point deadline);
  void end_case();
  // Ends waits, since another rank has failed or this process is about to end. May be called from any thread.
  void abort();
  [[nodiscard]] Reason reason() const { return reason_; }

  // While an object lives, the adapter's code may run on the thread that constructed the WaitBreaker.
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
  Clock::time_point wakes_ = Clock::time_point::max();  // when the thread next wakes up by itself
  std::jthread thread_;
};

}  // namespace cp_pool
