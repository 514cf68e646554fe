// The time between the runs of one process.
#pragma once

#include <chrono>
#include <memory>

namespace cp_pool {

// While one lives, SIGINT, SIGTERM and SIGHUP (unless it is ignored) do not end the process: a run that they reach is
// stopped by them as ever, and all are remembered here. Of the main thread, as runs are.
class BetweenRuns {
 public:
  BetweenRuns();  // throws std::system_error
  BetweenRuns(const BetweenRuns&) = delete;
  BetweenRuns& operator=(const BetweenRuns&) = delete;
  ~BetweenRuns();

  // Waits until a signal has come (since this was made, so also during a run), the descriptor can be read, or the time
  // is over. fd: not owned; -1: none. Returns whether a signal has come. Not while a run goes on.
  [[nodiscard]] bool wait(int fd, std::chrono::milliseconds limit);
  [[nodiscard]] bool signalled() { return wait(-1, std::chrono::milliseconds{0}); }

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace cp_pool
