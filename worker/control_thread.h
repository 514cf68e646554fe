// The watching thread of one rank, and the communicators that it aborts. It frees the computing thread from collectives
// and answers probes during a case. It ends the process when rank 0 orders it or is gone, in whatever state the
// computing thread is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "cp_core/comm/communicator.h"
#include "worker/case_runner.h"
#include "worker/control_plane.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

// Holds the communicators in use, shared by the thread that computes with them and the thread that aborts them.
class GroupSlot {
 public:
  using Clock = Communicator::Clock;

  void put(CpGroups groups, int generation) {
    CpGroups old;  // destroyed after the lock is released, because connections take time to close
    const std::lock_guard lock(mutex_);
    old = std::exchange(groups_, std::move(groups));
    generation_ = generation;
  }

  [[nodiscard]] CpGroups get() const {
    const std::lock_guard lock(mutex_);
    return groups_;
  }

  // Takes the communicators out to make room for those of `generation`. Waits until no other thread is aborting them,
  // so that the caller has the last reference. Returns nullopt if that lasts beyond `deadline`.
  [[nodiscard]] std::optional<CpGroups> take(int generation, Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    generation_ = generation;
    CpGroups old = std::exchange(groups_, {});
    if (!no_aborts_.wait_until(lock, deadline, [this] { return aborts_ == 0; })) return std::nullopt;
    return old;
  }

  // Aborts the communicators if they are of this generation, or of any generation if it is nullopt, because this
  // process is about to end. May be called from any thread.
  void abort(std::optional<int> generation) {
    CpGroups groups;
    {
      const std::lock_guard lock(mutex_);
      if (generation && generation != generation_) return;
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

 private:
  mutable std::mutex mutex_;
  std::condition_variable no_aborts_;
  CpGroups groups_;
  int generation_ = -1;
  int aborts_ = 0;  // number of aborts that are running
};

// How long the computing thread has to stop before the process ends anyway.
inline constexpr std::chrono::milliseconds kStopLimit{500};

class ControlThread {
 public:
  // prepare: called for each case to prepare for; must neither wait nor throw. `compute_stopped` becomes ready when the
  // computing thread has stopped.
  ControlThread(const protocol::RankEnvironment& environment, GroupSlot& groups, CaseRunner& runner,
                std::function<void(const nlohmann::json&)> prepare, std::shared_future<void> compute_stopped);
  ~ControlThread() = default;  // waits for ExitCommand or the end of the control plane

 private:
  void serve();
  void stop(int exit_code);

  int rank_;
  GroupSlot& groups_;
  CaseRunner& runner_;
  std::function<void(const nlohmann::json&)> prepare_;
  std::shared_future<void> compute_stopped_;
  MessageClient<ControlCommand> messages_;
  std::jthread aborting_;
  std::jthread thread_;
};

}  // namespace cp_pool
