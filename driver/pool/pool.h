// One worker group from spawn to retirement: it carries out what a PoolMachine (pool_machine.h) decides.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <asio/awaitable.hpp>

#include "driver/core/events.h"
#include "driver/core/run.h"
#include "driver/os/machine.h"
#include "driver/os/process_tree.h"
#include "driver/os/wakeup.h"
#include "driver/pool/pool_machine.h"
#include "driver/pool/run_context.h"
#include "driver/ranks/launcher.h"
#include "driver/ranks/worker_group.h"

namespace cp_pool {

// Where a pool runs: its slots and GPUs as in PoolSpawned, and its hosts if a launcher starts it.
struct PoolPlace {
  std::vector<int> slots;
  std::vector<std::string> gpus = {};
  std::vector<HostShare> hosts = {};  // empty: this host, or hosts that the launcher chooses
};

// How the ranks of a pool are started.
struct RankStart {
  const RunConfig* config = nullptr;  // worker, environment, device and start deadline; not owned, outlives the pool
  ForkServer* fork_server = nullptr;  // forks the ranks; nullptr: each rank is started on its own
};

class Pool : private PoolHands {
 public:
  // A case that the pool is to run, of which `started` has been emitted. All must stay valid until it has been
  // concluded.
  struct Next {
    RunContext* run = nullptr;
    const Item* named = nullptr;
    CaseStarted started = {};
    const Item* next = nullptr;  // CaseToRun::next
  };
  // Called when the pool is ready for a case, after each wake(). Returns nothing if there is no case for it.
  using TakeCase = std::function<std::optional<Next>()>;

  // home: the run that the pool is started, kept and ended for; its config applies to these steps.
  Pool(RunContext& home, RankStart start, PoolId id, int world_size, PoolPlace place, TakeCase take_case);
  ~Pool() override;  // kills the ranks if they were not retired

  // Starts the pool at the first call. Runs it until the machine has finished something.
  asio::awaitable<PoolMachine::Finished> next();
  void wake() { wakeup_.notify(); }
  // Called when nobody needs the pool any more: its start is given up, or it ends when it is idle.
  void give_up() {
    wanted_ = false;
    wake();
  }
  // Ends every process of the pool and emits pool_retired. begin_to_retire() is to be followed by next().
  asio::awaitable<void> retire(Retirement retirement);
  void begin_to_retire(Retirement retirement);

  // The lines that were written to rank 0's stdin for the last case.
  [[nodiscard]] const std::string& sent_lines() const { return sent_lines_; }
  [[nodiscard]] const PoolId& id() const { return id_; }
  // Process IDs by rank; empty before the ranks are started and after they are gone.
  [[nodiscard]] std::vector<int> pids() const { return group_ ? group_->pids() : std::vector<int>{}; }
  // For a user that talks to the ranks of an idle pool itself and does not call next() meanwhile.
  [[nodiscard]] WorkerGroup& group() const { return *group_; }
  [[nodiscard]] std::vector<ProcessInfo> processes() { return processes_.find(); }
  // As in CaseFinished::shared_gpus; known once the pool is ready.
  [[nodiscard]] int shared_gpus() const { return machine_.shared_gpus(); }

 private:
  PoolFacts facts() override;
  std::optional<Incoming> take_message() override { return group_->take(); }
  std::optional<CaseToRun> take_case() override;
  void start_server() override;
  std::optional<StartFailure> spawn(bool fork) override;
  void stop_forking() override { group_->stop_forking(); }
  std::string loopback_trouble() override { return cp_pool::loopback_trouble(); }
  void send(const protocol::Request& request) override;
  void close_stdin() override { group_->close_stdin_when_written(); }
  void begin_case(std::int64_t seq) override { group_->begin_case(seq); }
  void reopen_tails() override { group_->reopen_tails(); }
  void keep_tails() override { tails_ = group_->tails(); }
  std::string last_words(const RankEnd& end) override { return group_->last_words(end); }
  void show_stacks() override { group_->ask_for_stacks(); }
  void terminate() override { group_->terminate(); }
  void kill() override {
    if (group_) group_->kill();
  }
  int kill_processes() override { return processes_.kill_all(); }
  PoolRetired forget_ranks() override;
  void emit(Event event) override {
    (std::holds_alternative<CaseProgress>(event) ? run() : home_).emit(std::move(event));
  }
  std::int64_t next_seq() override { return ++host_.last_seq; }
  void count_failure() override { run().count_failure(); }
  bool memory_ran_out() override { return oom_kills() > oom_kills_before_; }

  // The run whose case the pool runs; between cases the one that it is kept for.
  [[nodiscard]] RunContext& run() { return case_ ? *case_->run : home_; }
  void make_group(bool fork);
  asio::awaitable<void> complete(Conclusion& conclusion);

  PoolHost& host_;
  RunContext& home_;
  RankStart start_;
  PoolId id_;
  int world_size_;
  PoolPlace place_;
  TakeCase take_case_;
  Wakeup wakeup_;
  std::string tag_;
  PoolProcesses processes_;
  std::unique_ptr<WorkerGroup> group_;  // none before the ranks are started and after they are gone
  std::optional<Next> case_;            // the current case
  MachineClocks clocks_;                // when it began
  std::vector<StderrTail> tails_;       // of keep_tails
  std::string sent_lines_;
  bool wanted_ = true;
  std::optional<std::int64_t> oom_kills_before_;  // oom_kills() when the pool was created
  PoolMachine machine_;
};

}  // namespace cp_pool
