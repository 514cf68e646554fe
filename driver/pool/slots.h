// Limits how many ranks work at once over all pools, so that pools of different world sizes do not compete for the
// machine.
#pragma once

#include <algorithm>
#include <deque>

#include "driver/pool/wakeup.h"

namespace cp_pool {

// First come, first served: a large pool is not starved by small ones.
class Slots {
 public:
  explicit Slots(int total) : total_(std::max(total, 1)), free_(total_) {}

  // Enters the line. A request for more slots than there are counts as a request for all.
  void enqueue(int ranks, Wakeup& wakeup) { line_.push_back({std::min(ranks, total_), &wakeup}); }

  // True once it is this one's turn and its ranks fit; then they are taken.
  bool try_take(const Wakeup& wakeup) {
    if (line_.empty() || line_.front().wakeup != &wakeup || line_.front().ranks > free_) return false;
    free_ -= line_.front().ranks;
    line_.pop_front();
    if (!line_.empty()) line_.front().wakeup->notify();
    return true;
  }

  void give_back(int ranks) {
    free_ += std::min(ranks, total_);
    if (!line_.empty()) line_.front().wakeup->notify();
  }

  // No longer wants any.
  void leave_line(const Wakeup& wakeup) {
    std::erase_if(line_, [&](const Waiting& w) { return w.wakeup == &wakeup; });
    if (!line_.empty()) line_.front().wakeup->notify();
  }

 private:
  struct Waiting {
    int ranks;
    Wakeup* wakeup;
  };
  int total_;
  int free_;
  std::deque<Waiting> line_;
};

}  // namespace cp_pool
