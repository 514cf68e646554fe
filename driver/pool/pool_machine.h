// Decides what happens to one worker group, from its start to its end, and to the cases that it runs. The machine is
// pure: it is told the time, sees its ranks as facts (PoolFacts) and acts on them through PoolHands. It starts no
// process and reads no clock, so tests run it under any time. Pool (pool.h) carries out what it says. Fleet (fleet.h)
// decides what follows for others: a respawn, or giving up a key.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/diagnosis.h"
#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/core/run.h"
#include "driver/pool/case_progress.h"
#include "driver/ranks/rank_facts.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Reasons of cases that did not end because the run was stopped.
inline constexpr const char* kInterrupted = "the run was interrupted";
inline std::string out_of_time(const RunConfig& config) {
  return "the run's " + std::to_string(config.global_timeout.count()) + " ms were over (--global-timeout)";
}

// Why no more cases may start. A flag that is set stays set.
struct StopState {
  bool interrupted = false;      // SIGINT, SIGTERM or SIGHUP: running cases end as cancelled
  bool kill_at_once = false;     // a second signal: ranks are killed without grace
  bool global_timeout = false;   // running cases end as timeout
  bool enough_failures = false;  // --max-fail: running cases go on
  bool service_ends = false;     // the service that runs the cases ends: running cases go on
  bool internal_error = false;   // an exception in the driver: running cases end as cancelled

  [[nodiscard]] bool no_new_cases() const { return abandon_running() || enough_failures || service_ends; }
  [[nodiscard]] bool abandon_running() const { return cancels() || global_timeout; }
  // Whether running cases end as cancelled.
  [[nodiscard]] bool cancels() const { return interrupted || internal_error; }
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
struct Conclusion {
  // False: the pool was lost before the case started, or the run was paused, so the case may be sent again.
  bool charged = true;
  CaseOutcome outcome = CaseOutcome::crash;
  std::string reason;
  double duration_ms = 0;
  protocol::ResultEvent result;  // the worker's result; default-constructed if none came
  std::optional<Diagnosis> diagnosis;
  bool counted = false;                  // PoolHands::count_failure() was called for it
  std::vector<StderrTail> stderr_tails;  // of outcomes other than pass and skip
  std::optional<Retirement> retirement;  // why the pool must not be used again; none: it can be
};

struct PoolFacts {
  RankFacts ranks;
  ServerFacts server;
  StopState stop;        // of the run whose case the pool runs; between cases of the run that it is kept for
  bool pausing = false;  // the run is about to be paused, for which every pool ends
  bool wanted = true;    // false: nobody needs the pool any more
  std::uint64_t status_requests = 0;  // RunContext::status_requests
};

// A case that a pool is to run. The pointers stay valid until it has been concluded.
struct CaseToRun {
  const RunConfig* config = nullptr;  // of the case's run
  const Item* named = nullptr;
  CaseStarted started = {};        // the event that has been emitted
  const Item* next = nullptr;      // the case that the pool is to run afterwards; nullptr: it is not known
  std::string name_of_files = {};  // the ID that the worker names files by; empty: named->id
  bool was_diagnosed = false;      // an earlier run of the case has a diagnosis
  std::vector<KnownMistake> known_mistakes = {};  // for a diagnosis of the case
};

// What a PoolMachine does, and what it looks at. None of the functions waits.
class PoolHands {
 public:
  virtual ~PoolHands() = default;

  [[nodiscard]] virtual PoolFacts facts() = 0;
  // Returns rank 0's next message, oldest first; nullopt if there is none yet.
  virtual std::optional<Incoming> take_message() = 0;
  // Called when the pool is idle and good. Returns the case that it is to run now, whose `started` has been emitted.
  virtual std::optional<CaseToRun> take_case() = 0;

  // Starts
  virtual void start_server() = 0;
  // Starts the ranks, or begins to fork them. After a failure some may have been started.
  virtual std::optional<StartFailure> spawn(bool fork) = 0;
  virtual void stop_forking() = 0;
  virtual std::string loopback_trouble() = 0;

  // Ranks
  virtual void send(const protocol::Request& request) = 0;
  virtual void close_stdin() = 0;                 // when all has been written
  virtual void begin_case(std::int64_t seq) = 0;  // later lines of stderr belong to this case
  virtual void reopen_tails() = 0;                // StderrBuffer::reopen of every rank
  virtual void keep_tails() = 0;                  // as they are now, for the StartFailure or Conclusion that follows
  virtual std::string last_words(const RankEnd& end) = 0;
  virtual void show_stacks() = 0;
  virtual void terminate() = 0;
  virtual void kill() = 0;
  virtual int kill_processes() = 0;        // that the ranks have left behind; returns how many there were
  virtual PoolRetired forget_ranks() = 0;  // returns their exits and leftovers

  // Runs
  virtual void emit(Event event) = 0;
  virtual std::int64_t next_seq() = 0;
  virtual void count_failure() = 0;
  virtual bool memory_ran_out() = 0;  // the kernel has killed a process for it since the pool's start
};

class PoolMachine {
 public:
  enum class State {
    created,
    awaiting_server,  // the fork server is starting
    forking,          // it forks the ranks
    starting,         // the ranks exist, and the worker is not ready
    start_failing,    // its last words are read
    idle,             // it is ready for a case
    pipes_closed,     // idle, and a pipe of rank 0 has closed: the rank's exit may explain it
    running,          // a case has been sent
    cancelling,       // the worker was asked to end the case
    draining,         // a rank or a pipe is gone: what is still in the pipes is read
    fencing,          // there is a result, and the stderr of the case is read to its end
    diagnosing,       // the worker looks for the cause of a failure
    diagnosis_draining,
    showing_stacks,  // the ranks write where they stand
    over,            // it takes no case any more and waits for retire()
    shutting_down,   // the worker was asked to end
    terminating,     // SIGTERM was sent
    killing,         // SIGKILL was sent
    sweeping,        // processes that the ranks have left behind are killed
    gone
  };

  struct Setup {
    PoolSpawned pool;  // without the pids
    std::chrono::milliseconds start_timeout;
    const RunConfig* home = nullptr;  // the settings of the run that the pool is kept for
  };
  PoolMachine(PoolHands& hands, Setup setup) : hands_(hands), setup_(std::move(setup)) {}

  // Looks at the processes that must find none, because a process may fork while /proc is read.
  static constexpr int kCleanSweeps = 2;

  struct Ready {};
  struct Gone {};
  // The worker is ready; it never was; a case has ended; an idle pool has ended, and why; the pool is gone.
  using Finished = std::variant<Ready, StartFailure, Conclusion, Retirement, Gone>;
  // Does what is due at this time. Returns what has been finished, if anything; then it is to be called again.
  std::optional<Finished> look(Clock::time_point now);
  // When look() is to be called next even if no fact has changed.
  [[nodiscard]] Clock::time_point next_look() const;
  // Begins to end every process of the pool; later calls do nothing. If the reason is not the worker's fault, it is
  // asked to shut down first.
  void retire(Retirement retirement, Clock::time_point now);

  [[nodiscard]] State state() const { return state_; }
  // As in CaseFinished::shared_gpus; known once the pool is ready.
  [[nodiscard]] int shared_gpus() const { return shared_gpus_; }

 private:
  static constexpr std::size_t kMostLastWords = 400;  // bytes of a line that a text quotes

  struct Outstanding {  // the case that has been sent; seq 0: there is none
    std::int64_t seq = 0;
    CaseToRun what = {};
    bool started = false;
    bool cancelled = false;       // the worker was asked to end the case
    bool asks_diagnosis = false;  // the worker is asked for a diagnosis if the case fails
    std::optional<protocol::ResultEvent> result = {};
    std::optional<protocol::DiagnosisEvent> diagnosis = {};
    std::optional<std::string> protocol_break = {};
    std::int64_t ping = 0;  // seq of the last ping that was sent
    std::optional<protocol::PongEvent> pong = {};
    std::uint64_t status_requests = 0;                        // how many of PoolFacts::status_requests are answered
    Clock::time_point pong_limit = Clock::time_point::max();  // deadline of the pong, if one is awaited
    Clock::time_point sent = {};
    Clock::time_point drain_start = {};
    std::chrono::milliseconds timeout{0};
    ProgressWatch progress{Clock::time_point::max(), std::chrono::milliseconds{0}};
    Conclusion conclusion = {};  // what is known of it
    bool rejected = false;       // a pass that its own figures deny

    // When an event about the case may be due next.
    [[nodiscard]] Clock::time_point next() const { return std::min(progress.next(), pong_limit); }
    [[nodiscard]] bool diagnosing() const { return asks_diagnosis && result && result->diagnosing; }
  };

  void step();
  void enter(State state, Clock::time_point limit = Clock::time_point::max());
  [[nodiscard]] bool over_time() const { return now_ >= limit_; }
  [[nodiscard]] bool any_ended() const { return !facts_.ranks.ends.empty(); }
  // Whether no result can come any more.
  [[nodiscard]] bool lost() const { return any_ended() || facts_.ranks.stdin_broken || facts_.ranks.stdout_closed; }
  std::string describe_deaths();
  std::string describe_last_words();
  [[nodiscard]] std::string describe_silence() const;

  // pool_machine.cpp: start and end
  void begin();
  void await_server();
  void await_forks();
  void after_spawn(std::optional<StartFailure> failure);
  void await_ready();
  void take_ready(const protocol::ReadyEvent& ready);
  void begin_to_fail(std::string why);
  void fail_start();
  void fail(StartFailure failure);
  [[nodiscard]] bool ended_or_over_time() const {
    return facts_.ranks.all_ended || facts_.stop.kill_at_once || over_time();
  }
  void shut_down();
  void begin_to_kill();
  void sweep();
  [[nodiscard]] std::optional<StartFailure> given_up_start() const;
  [[nodiscard]] std::optional<std::string> refuse(const protocol::ReadyEvent& ready) const;
  [[nodiscard]] bool any_exited_with(std::span<const int> exit_codes) const;

  // pool_machine_case.cpp: idle, and one case from its request to its conclusion
  void await_case();
  std::optional<Retirement> idle_retirement();
  void begin_case(CaseToRun what);
  void send_case();
  void read_messages();
  void take(const protocol::Event& event);
  void run();
  void begin_to_cancel();
  void await_cancelled();
  void begin_to_drain(State state);
  void drain();
  void await_fences();
  void await_stacks();
  void emit_progress();
  void emit_standings();
  void ask_ranks();
  [[nodiscard]] CaseProgress progress() const;
  void conclude();
  void conclude_with_result();
  void conclude_lost();
  void conclude_unfinished();
  void finish_with_result();
  void end_case(State next);
  void show_stacks();
  void set_stopped_outcome();
  void reject_false_pass();
  void check_times();
  std::optional<Retirement> judge();
  std::optional<std::string> excess_growth();
  std::optional<Retirement> loss(std::string_view when);
  [[nodiscard]] std::string last_phase(std::string_view before, std::string_view after) const;
  // Whether the worker acts on this optional request: capabilities.requests lists those that it does not ignore.
  [[nodiscard]] bool offers(const char* request) const { return lists(capabilities_, "requests", request); }
  [[nodiscard]] bool wants_diagnosis() const;
  void await_diagnosis();
  void end_diagnosis();

  PoolHands& hands_;
  Setup setup_;
  State state_ = State::created;
  Clock::time_point now_;
  Clock::time_point limit_ = Clock::time_point::min();  // when the state ends if nothing else ends it
  PoolFacts facts_;
  std::optional<Finished> finished_;
  Clock::time_point created_;
  struct {
    std::string why;         // why the worker cannot start, as far as it is known
    bool permanent = false;  // another start cannot help
    bool late = false;       // it was not ready in time
  } failing_;
  nlohmann::json capabilities_;
  int shared_gpus_ = 0;
  Outstanding current_;
  int cases_ = 0;
  Clock::time_point last_result_;
  std::map<int, protocol::Hygiene> first_hygiene_;  // by rank, after its first case
  std::optional<Retirement> retirement_;            // none: the ranks are ended to be started anew
  Clock::time_point kill_limit_;
  int clean_sweeps_ = 0;
};

}  // namespace cp_pool
