// One worker group from spawn to retirement. This class decides what the end of a case means for the pool. Lane
// (lane.h) and Fleet (fleet.h) decide what follows for others: a respawn, or giving up a key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "driver/clock.h"
#include "driver/events.h"
#include "driver/launcher/launcher.h"
#include "driver/pool/progress_watch.h"
#include "driver/pool/run_context.h"
#include "driver/pool/wakeup.h"
#include "driver/pool/worker_group.h"
#include "driver/process/process_tree.h"
#include "driver/run.h"

namespace cp_pool {

// Where a pool runs: its slots and GPUs as in PoolSpawned, and its hosts if a launcher starts it.
struct PoolPlace {
  std::vector<int> slots;
  std::vector<std::string> gpus;
  std::vector<HostShare> hosts;  // empty: this host, or hosts that the launcher chooses
};

// How the ranks of a pool are started.
struct RankStart {
  const RunConfig* config = nullptr;  // worker, environment, device and start deadline; not owned, outlives the pool
  ForkServer* fork_server = nullptr;  // forks the ranks; nullptr: each rank is started on its own
};

struct Retirement {
  RetireReason reason = RetireReason::finished;
  std::string detail;
  bool at_once = false;  // kill the ranks without grace, whatever the reason
};

// Why a pool never became ready.
struct StartFailure {
  Retirement retirement;
  bool permanent = false;  // another start cannot help
  bool skip = false;       // the cases are skipped: this machine has too few devices
  std::vector<StderrTail> stderr_tails;
};

// The result of sending one case to the pool.
struct Attempt {
  // False: the pool was lost before the case started, or the run was paused, so the case may be sent again.
  bool charged = true;
  bool paused = false;
  CaseOutcome outcome = CaseOutcome::crash;
  std::string reason;
  double duration_ms = 0;
  protocol::ResultEvent result;  // the worker's result; default-constructed if none came
  std::optional<Diagnosis> diagnosis;
  bool counted = false;                  // RunContext::count_failure() was called for it
  std::vector<StderrTail> stderr_tails;  // of outcomes other than pass and skip
  std::optional<Retirement> retirement;  // why the pool must not be used again; none: it can be
};

class Pool {
 public:
  // home: the run that the pool is started, kept and ended for; its config applies to these steps.
  // wakeup: is notified of every change, and is waited on by start, run_case and retire. Not owned.
  Pool(RunContext& home, RankStart start, PoolId id, int world_size, PoolPlace place, Wakeup& wakeup);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();  // kills the ranks if they were not retired

  // Spawns the ranks and waits until they are ready. Returns nullopt if they are. After a failure the pool must still
  // be retired.
  asio::awaitable<std::optional<StartFailure>> start();

  // Called when nobody needs the pool any more. If start() is still running, it ends soon.
  void give_up_start();

  // Sends a case of this run, whose `started` event has been emitted, and waits for its end. next: the case that this
  // pool is to run afterwards, or nullptr if it is not known; a worker that offers it may prepare for that case
  // meanwhile.
  asio::awaitable<Attempt> run_case(RunContext& run, const NamedCase& named, const CaseStarted& started,
                                    const NamedCase* next);

  // The lines that were written to rank 0's stdin for the last case.
  [[nodiscard]] const std::string& sent_lines() const { return sent_lines_; }

  // Called between cases. Returns why the pool cannot be used any more; nullopt if it can.
  asio::awaitable<std::optional<Retirement>> check_idle();

  // Ends every process of the pool and emits pool_retired. If the reason is not the worker's fault, the worker is asked
  // to shut down first.
  asio::awaitable<void> retire(Retirement retirement);

  [[nodiscard]] const PoolId& id() const { return id_; }
  // Process IDs by rank; empty before the ranks are started and after they are gone.
  [[nodiscard]] std::vector<int> pids() const;
  // As in CaseFinished::shared_gpus; known once the pool is ready.
  [[nodiscard]] int shared_gpus() const { return shared_gpus_; }

 private:
  struct Outstanding {  // the case that has been sent; seq 0: there is none
    std::int64_t seq = 0;
    bool started = false;
    bool cancelled = false;  // the worker was asked to end the case
    std::optional<double> baseline_ms;
    bool asks_why = false;  // the worker is asked for a diagnosis if the case fails
    std::optional<protocol::ResultEvent> result;
    std::optional<protocol::DiagnosisEvent> diagnosis;
    std::optional<std::string> protocol_break;
    std::int64_t ping = 0;  // seq of the last ping that was sent
    std::optional<protocol::PongEvent> pong;
    std::uint64_t status_requests = 0;                        // how many of RunContext::status_requests are answered
    Clock::time_point pong_limit = Clock::time_point::max();  // deadline of the pong, if one is awaited
    Clock::time_point sent;
    std::chrono::milliseconds timeout{0};
    bool own_timeout = false;         // the deadline is the case's own, not that of the run
    bool may_be_tried_again = false;  // it is retried if it fails (--retries)
    Clock::time_point deadline;
    ProgressWatch progress{Clock::time_point::max(), std::chrono::milliseconds{0}};

    // When an event about the case may be due next.
    [[nodiscard]] Clock::time_point next() const { return std::min(progress.next(), pong_limit); }
  };

  // pool.cpp: start and idle
  void spawn(bool forks);
  std::optional<StartFailure> try_spawn(bool forks);
  [[nodiscard]] bool start_is_given_up() const { return unneeded_ || host_.pausing() || run_->stop.abandon_running(); }
  [[nodiscard]] StartFailure given_up_start() const;
  [[nodiscard]] StartFailure refused_start() const;
  asio::awaitable<bool> await_fork_server();
  asio::awaitable<std::optional<StartFailure>> await_forks();
  asio::awaitable<StartFailure> failed_start(std::string why);
  std::optional<std::string> refuse(const protocol::ReadyEvent& ready) const;
  [[nodiscard]] bool permanently_failed() const;
  [[nodiscard]] bool too_few_devices() const;
  std::string describe_deaths();
  [[nodiscard]] std::string describe_silence() const;
  [[nodiscard]] std::string describe_misplaced_sentinel() const;
  std::string describe_last_words();

  // pool_case.cpp
  asio::awaitable<Attempt> run_case(const NamedCase& named, const CaseStarted& started, const NamedCase* next);
  void send_case(const NamedCase& named, const Outstanding& current, std::size_t index, const NamedCase* next);
  void take_messages(Outstanding& current);
  void take_event(Outstanding& current, const protocol::Event& event);
  asio::awaitable<void> wait_for_end(Outstanding& current, const CaseStarted& started);
  void tell_progress(Outstanding& current, const CaseStarted& started);
  void tell_where_ranks_stand(Outstanding& current, const CaseStarted& started);
  [[nodiscard]] CaseProgress progress_of(const Outstanding& current, const CaseStarted& started) const;
  asio::awaitable<void> cancel(Outstanding& current);
  asio::awaitable<void> drain(Outstanding& current);
  asio::awaitable<void> wait_for_fences();
  asio::awaitable<Attempt> conclude_with_result(Outstanding& current, const CaseStarted& started);
  std::optional<Retirement> disbelieve(Outstanding& current, Attempt& attempt) const;
  void judge_times(Outstanding& current, Attempt& attempt) const;
  [[nodiscard]] RetireReason reason_of_death(const Outstanding& current) const;
  Attempt conclude_lost(const Outstanding& current);
  static Attempt conclude_paused(const Outstanding& current);
  asio::awaitable<void> ask_for_stacks();
  asio::awaitable<Attempt> conclude_unfinished(const Outstanding& current);
  void blame_end_of_run(Attempt& attempt) const;
  std::optional<Retirement> judge(const Outstanding& current);
  std::optional<std::string> growth_past_limit(const protocol::ResultEvent& result);
  [[nodiscard]] bool ended(const Outstanding& current) const;
  [[nodiscard]] bool lost() const;
  [[nodiscard]] bool offers(const char* request) const;

  // pool_diagnosis.cpp
  [[nodiscard]] bool wants_diagnosis(const NamedCase& named) const;
  // Whether the worker is asked why the case failed, if it fails.
  [[nodiscard]] bool asks_why(const NamedCase& named) const;
  // Gives an attempt that failed a diagnosis that says why the worker was not asked about this kind of case.
  void say_why_undiagnosed(const NamedCase& named, Attempt& attempt) const;
  static bool takes_diagnosis(const Outstanding& current, const protocol::DiagnosisEvent& event);
  asio::awaitable<std::optional<Retirement>> diagnose(Outstanding& current, const CaseStarted& started,
                                                      Attempt& attempt);
  asio::awaitable<void> wait_for_diagnosis(Outstanding& current, const CaseStarted& started);
  std::optional<Retirement> take_diagnosis(const Outstanding& current, const CaseStarted& started, Attempt& attempt);

  // pool_retire.cpp
  asio::awaitable<void> ask_to_shut_down();
  asio::awaitable<void> terminate();
  asio::awaitable<void> kill();
  asio::awaitable<void> wait_for_exits(Clock::time_point limit);
  void forget_group();
  [[nodiscard]] std::vector<RankExit> exits() const;

  PoolHost& host_;
  RunContext& home_;
  RunContext* run_;  // the run whose case it runs; between cases home_
  RankStart start_;
  PoolId id_;
  int world_size_;
  PoolPlace place_;
  Wakeup& wakeup_;
  std::string tag_;
  PoolProcesses processes_;
  std::unique_ptr<WorkerGroup> group_;
  nlohmann::json capabilities_;
  int shared_gpus_ = 0;
  bool unneeded_ = false;  // see give_up_start
  bool idle_ = false;      // it is ready, and no case is outstanding
  Clock::time_point spawned_;
  std::optional<std::int64_t> oom_kills_before_;  // oom_kills() when the pool was created
  Clock::time_point last_result_;
  std::string sent_lines_;
  int cases_ = 0;
  std::map<int, protocol::Hygiene> first_hygiene_;  // by rank, after its first case
};

}  // namespace cp_pool
