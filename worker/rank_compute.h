// The computing thread of one rank: it runs cases as rank 0 commands, and reports.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/case_runner.h"
#include "worker/control_plane.h"
#include "worker/control_thread.h"
#include "worker/data_plane.h"
#include "worker/environment_baseline.h"
#include "worker/fault_injector.h"
#include "worker/plan_prefetcher.h"
#include "worker/protocol/environment.h"
#include "worker/rank_device.h"

namespace cp_pool {

class RankCompute {
 public:
  struct Parts {
    const protocol::RankEnvironment& environment;
    const EnvironmentBaseline& baseline;
    at::Device device;
    CaseRunner& runner;
    FaultInjector& faults;
    GroupSlot& groups;
    PlanPrefetcher& prefetcher;
    const OwnGpu& gpu;
  };
  // Only this object uses `messages` and `store`. Communicators find each other in `store`.
  RankCompute(Parts parts, MessageClient<ComputeCommand>& messages, c10::intrusive_ptr<c10d::Store> store)
      : parts_(parts), messages_(messages), store_(std::move(store)) {}

  // Connects the communicators of a generation, the first of which is 0. Throws CommError.
  void connect(int generation, std::chrono::milliseconds limit, ConnectOptions options = {});
  // Executes commands until ExitCommand. Throws ControlPlaneError if rank 0 is gone; any other error outside a case
  // ends the process.
  void serve();

 private:
  using Clock = Communicator::Clock;

  void handle(const RunCommand& request);
  void handle(const DiagnoseCommand& command);
  void handle(const RebuildCommand& command);
  // Returns the BeginCommand or LeaveCommand of the case; nullopt at the deadline. Throws CommError with the text
  // `ended` if the case has been ended.
  template <typename Command>
  std::optional<Command> wait_for(std::int64_t seq, std::optional<Clock::time_point> deadline, const char* ended);
  void run_case(const protocol::RunRequest& request, RankOutcome& outcome);
  void run_call(const protocol::RunRequest& request, bool renew_groups, RankOutcome& outcome);
  std::optional<Diagnosis> diagnose(const DiagnoseCommand& command);
  std::optional<Diagnosis> diagnose(const DiagnoseCommand& command, Clock::time_point start, bool own_dtype);
  // Sets deadline_ in the communicators that the case in progress uses.
  void set_deadline() const;
  // Returns when every rank has reached the end of the case or of its diagnosis. declined: where this rank has declined
  // it, else empty. Throws CommError if a rank does not come in time, the ranks are at different places, or the case
  // has been ended.
  void meet_others(std::int64_t seq, std::int64_t tag, const std::string& declined = {});
  void wait_for_leave(const CaseArrived& arrived);
  // Returns the communicators that the case in progress uses: those of its groups if several run at once, then those of
  // all ranks.
  [[nodiscard]] std::vector<std::shared_ptr<Communicator>> communicators() const;
  [[nodiscard]] std::chrono::milliseconds time_left() const;  // until the deadline; never too short for a barrier
  // Called inside a catch block: tells rank 0 of the failure at once, then resolves the stack trace.
  Failure report_failure(std::int64_t seq, FailurePhase phase);

  Parts parts_;
  MessageClient<ComputeCommand>& messages_;
  c10::intrusive_ptr<c10d::Store> store_;
  Clock::time_point deadline_;
  Division division_;                         // of the case in progress, once its communicators are made
  std::shared_ptr<const JudgedCase> judged_;  // data of the last case, if it can be diagnosed
  std::vector<KnownMistake> known_mistakes_;  // of the last case's request
  bool has_diagnosed_ = false;
  bool judges_ = false;  // the code under test has returned; its results are judged
  bool exiting_ = false;
};

}  // namespace cp_pool
