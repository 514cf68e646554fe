// The watching thread of one rank. It frees the computing thread from collectives and answers probes during a case. It
// ends the process when rank 0 orders it or is gone, in whatever state the computing thread is.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "worker/control_plane.h"
#include "worker/group_slot.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

// How long the computing thread has to stop before the process ends anyway.
inline constexpr std::chrono::milliseconds kStopLimit{500};

class ControlThread {
 public:
  struct Functions {
    std::function<void(const nlohmann::json&)> prepare;  // called for each case to prepare for
    std::function<void(int)> free_waits;                 // CaseRunner::free_waits, called with each abort of the groups
    std::function<std::optional<GroupHistory>()> history;  // CaseRunner::history
  };
  // `compute_stopped` becomes ready when the computing thread has stopped. The functions must neither wait nor throw.
  ControlThread(const protocol::RankEnvironment& environment, GroupSlot& groups,
                std::shared_future<void> compute_stopped, Functions functions);
  ~ControlThread() = default;  // waits for ExitCommand or the end of the control plane

 private:
  void serve();
  void stop(int exit_code);

  int rank_;
  GroupSlot& groups_;
  std::shared_future<void> compute_stopped_;
  Functions functions_;
  MessageClient<ControlCommand> messages_;
  std::jthread aborting_;
  std::jthread thread_;
};

}  // namespace cp_pool
