// The watching thread of one rank: it frees the computing thread from collectives, answers probes during a case, and
// ends the process when rank 0 says so or is gone, whatever the computing thread does.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "worker/control_plane.h"
#include "worker/group_slot.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

// How long the computing thread has to stop by itself before the process ends without it.
inline constexpr std::chrono::milliseconds kStopLimit{500};

class Watcher {
 public:
  struct Functions {
    std::function<void(const nlohmann::json&)> prepare;  // for each case that shall be prepared for
    std::function<void(int)> free_waits;                 // CaseRunner::free_waits: with each abort of the groups
  };
  // `compute_stopped` becomes ready when the computing thread has stopped. The functions must neither wait nor throw.
  Watcher(const protocol::RankEnvironment& environment, GroupSlot& groups, std::shared_future<void> compute_stopped,
          Functions functions);
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher() = default;  // waits for ExitCommand or the end of the control plane

 private:
  void serve();
  void stop(int exit_code);

  int rank_;
  GroupSlot& groups_;
  std::shared_future<void> compute_stopped_;
  Functions functions_;
  Mail mail_;
  std::jthread thread_;
};

}  // namespace cp_pool
