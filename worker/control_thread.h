// The watching thread of one rank. It frees the computing thread from collectives and answers probes during a case. It
// ends the process when rank 0 orders it or is gone, in whatever state the computing thread is.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "worker/case_runner.h"
#include "worker/control_plane.h"
#include "worker/group_slot.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

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
