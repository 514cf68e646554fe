// Rank 0's side of the protocol: it takes requests, directs the ranks, and answers. It is a state machine that never
// waits: its methods are called for events and when a deadline passes, and it sends through Ports.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/aggregate.h"
#include "worker/group_differences.h"
#include "worker/protocol/messages.h"
#include "worker/rank_messages.h"

namespace cp_pool {

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;

  // How the coordinator sends. None of these methods waits for another rank.
  class Ports {
   public:
    virtual ~Ports() = default;
    virtual void emit(const protocol::Event& event) = 0;
    virtual void command(const ComputeCommand& command) = 0;  // to the compute thread of every rank
    virtual void watch(const ControlCommand& command) = 0;
    virtual Clock::time_point now() = 0;
    // Says that no rank uses the communicators of this generation any longer.
    virtual void forget_generation(int generation) = 0;
  };

  struct Limits {
    std::chrono::milliseconds decline{3000};  // from the first rank that declines a case until every rank has
    std::chrono::milliseconds free{900};      // from an abort until every rank is free
    std::chrono::milliseconds rebuild{950};   // from then until every rank has new communicators
    std::chrono::milliseconds probe{1000};    // from a ping of all ranks to its pong
    std::chrono::milliseconds exit{500};      // from a shutdown to every rank's goodbye
  };

  // `ready` holds the fields that are known without the ranks. The ranks and startup_ms are added from RankStarted.
  Coordinator(Ports& ports, protocol::ReadyEvent ready, Limits limits);
  Coordinator(Ports& ports, protocol::ReadyEvent ready) : Coordinator(ports, std::move(ready), Limits{}) {}

  void on_request(const protocol::Request& request);
  void on_bad_request(const protocol::ProtocolError& error);
  void on_end_of_input();  // the driver is gone, or has asked to stop
  void on_rank_message(const RankMessage& message);
  void on_time();  // to be called at or after next_deadline()

  [[nodiscard]] std::optional<Clock::time_point> next_deadline() const;
  // True once every rank has said goodbye, or the time for goodbyes is over.
  [[nodiscard]] bool finished() const { return state_ == State::finished; }
  // Whether every rank said goodbye in time.
  [[nodiscard]] bool stopped_cleanly() const { return goodbyes_ == world_size_; }

 private:
  // diagnosing: the result has been sent, and the ranks look for the cause.
  // freeing: an abort has been sent, and the ranks return from the case.
  // rebuilding: the ranks connect again.
  // unhealthy: run requests are refused.
  enum class State { starting, idle, running, diagnosing, freeing, rebuilding, unhealthy, stopping, finished };

  struct Probe {
    std::int64_t seq = 0;
    Clock::time_point deadline;
    std::vector<protocol::RankPhase> answers;
    std::vector<GroupHistory> histories;
  };

  // Why the ranks cannot run it, as a sentence; empty if they can.
  [[nodiscard]] std::string why_refused(const protocol::RunRequest& request) const;
  void handle(const protocol::RunRequest& request);
  void handle(const protocol::PrepareRequest& request);
  void handle(const protocol::CancelRequest& request);
  void handle(const protocol::PingRequest& request);
  void handle(const protocol::ShutdownRequest&) { on_end_of_input(); }

  void handle(const RankStarted& started);
  void handle(const CaseReset& reset);
  void handle(const CasePhase& phase);
  void handle(const CaseArrived& arrived);
  void handle(const CaseFailing& failing);
  void handle(const CaseDone& done);
  void handle(const DiagnosisDone& done);
  void handle(const Rebuilt& rebuilt);
  void handle(const Probed& probed);
  void handle(const Goodbye& goodbye);

  [[nodiscard]] bool is_current(std::int64_t seq) const;
  void refuse(std::int64_t seq, const std::string& reason, bool healthy);
  void abort_case();
  void case_complete();
  void start_rebuild();
  void finish(bool healthy, const std::string& trouble);
  void finish_case(bool healthy, const std::string& trouble);
  void start_diagnosis();
  void finish_diagnosis(bool healthy, const std::string& trouble);
  void finish_probe();

  Ports& ports_;
  protocol::ReadyEvent ready_;
  Limits limits_;
  int world_size_;
  State state_ = State::starting;
  // Of the states freeing, rebuilding and stopping, and of a case that some ranks have declined.
  std::optional<Clock::time_point> deadline_;
  CaseSummary case_;
  bool result_is_out_ = false;            // case_'s result has been sent, but not its diagnosis
  std::vector<DiagnosisDone> diagnoses_;  // in order of arrival
  int resets_ = 0;
  bool renew_groups_ = false;
  Arrivals arrivals_;  // ranks that are at the end of the case, or of its diagnosis
  int rebuilt_ = 0;
  int generation_ = 0;
  int goodbyes_ = 0;
  std::int64_t last_token_ = 0;
  std::optional<Probe> probe_;
};

}  // namespace cp_pool
