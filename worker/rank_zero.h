// What rank 0 does beside computing: it reads requests, receives messages of ranks, and runs the coordinator, each on
// its own thread.
#pragma once

#include <memory>

#include "worker/control_plane.h"
#include "worker/fault_injector.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

class RankZero {
 public:
  // Serves until end of input or shutdown. stdin_fd and stdout_fd are not owned. Faults of phase `result` fire while a
  // result is written.
  RankZero(MessageServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd, int stdout_fd);
  ~RankZero();

  // Waits for the end; returns whether every rank stopped in time.
  bool wait();

 private:
  class Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace cp_pool
