// The communicators in use, shared by the thread that computes with them and the one that aborts them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

class GroupSlot {
 public:
  using Clock = Communicator::Clock;

  void put(CpGroups groups, int generation) {
    CpGroups old;  // destroyed without the lock: connections take time to close
    const std::lock_guard lock(mutex_);
    old = std::exchange(groups_, std::move(groups));
    generation_ = generation;
  }

  [[nodiscard]] CpGroups get() const {
    const std::lock_guard lock(mutex_);
    return groups_;
  }

  // Takes the communicators out to make room for those of `generation`. Waits until no other thread is aborting them,
  // so that the caller has the last reference. nullopt if that lasts beyond `deadline`.
  [[nodiscard]] std::optional<CpGroups> take(int generation, Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    generation_ = generation;
    CpGroups old = std::exchange(groups_, {});
    if (!no_aborts_.wait_until(lock, deadline, [this] { return aborts_ == 0; })) return std::nullopt;
    return old;
  }

  // Aborts the communicators if they are of this generation. From any thread.
  void abort(int generation) {
    abort_if([&] { return generation == generation_; });
  }

  // Aborts the communicators whatever their generation: this process is about to end.
  void abort_any() {
    abort_if([] { return true; });
  }

 private:
  template <typename Condition>
  void abort_if(Condition&& condition) {
    CpGroups groups;
    {
      const std::lock_guard lock(mutex_);
      if (!condition()) return;
      groups = groups_;
      ++aborts_;
    }
    for (const auto& group : {groups.cp, groups.inner, groups.outer}) {
      if (group) group->abort();
    }
    groups = {};
    {
      const std::lock_guard lock(mutex_);
      --aborts_;
    }
    no_aborts_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable no_aborts_;
  CpGroups groups_;
  int generation_ = -1;
  int aborts_ = 0;  // under way
};

}  // namespace cp_pool
