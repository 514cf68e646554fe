// The communicators in use, shared by the thread that computes with them and the one that aborts them.
#pragma once

#include <mutex>
#include <utility>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

class GroupSlot {
 public:
  void put(CpGroups groups, int generation) {
    const std::lock_guard lock(mutex_);
    groups_ = std::move(groups);
    generation_ = generation;
  }

  [[nodiscard]] CpGroups get() const {
    const std::lock_guard lock(mutex_);
    return groups_;
  }

  // Aborts the communicators if they are of this generation. From any thread.
  void abort(int generation) {
    CpGroups groups;
    {
      const std::lock_guard lock(mutex_);
      if (generation != generation_) return;
      groups = groups_;
    }
    abort(groups);
  }

  // Whatever their generation: this process is about to end.
  void abort_any() { abort(get()); }

 private:
  static void abort(const CpGroups& groups) {
    for (const auto& group : {groups.cp, groups.inner, groups.outer}) {
      if (group) group->abort();
    }
  }

  mutable std::mutex mutex_;
  CpGroups groups_;
  int generation_ = -1;
};

}  // namespace cp_pool
