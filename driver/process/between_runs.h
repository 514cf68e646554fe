// Signals in the time between the runs of one process.
#pragma once

#include <chrono>
#include <memory>

namespace cp_pool {

// While an object of this class exists, SIGINT, SIGTERM and SIGHUP (unless it is ignored) do not end the process. A run
// that they arrive in is stopped by them as usual, and this class remembers all of them. To be used on the main thread,
// as runs are.
class BetweenRuns {
 public:
  BetweenRuns();  // throws std::system_error
  BetweenRuns(const BetweenRuns&) = delete;
  BetweenRuns& operator=(const BetweenRuns&) = delete;
  ~BetweenRuns();

  // Waits until a signal has arrived since construction (a run included), fd can be read, or `limit` is over. fd: not
  // owned; -1: none. Returns whether a signal has arrived. Must not be called during a run.
  [[nodiscard]] bool wait(int fd, std::chrono::milliseconds limit);
  [[nodiscard]] bool signalled() { return wait(-1, std::chrono::milliseconds{0}); }

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace cp_pool
