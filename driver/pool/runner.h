// Runs cases, on pools of this process.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>

#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/core/ledger.h"
#include "driver/core/run.h"
#include "driver/os/process_settings.h"
#include "driver/os/wakeup.h"
#include "driver/pool/fleet.h"
#include "driver/pool/job_control.h"
#include "driver/pool/run_context.h"
#include "driver/ranks/fork_server.h"
#include "driver/ranks/pool_host.h"

namespace cp_pool {

// Whoever runs cases: pools of this process (Runner) or a service (driver/service/). The list, stream or search that
// provides the cases need not know which of them it is.
class CaseExecutor {
 public:
  virtual ~CaseExecutor() = default;

  // Adds a case. Returns its index in the events.
  virtual std::size_t add(Item named) = 0;
  // After this call the run ends when all cases that were added have ended.
  virtual void no_more_cases() = 0;

  std::function<void(const CaseFinished&)> on_case_finished;  // called after the event was emitted
  std::function<void()> on_abandon;  // called when the run is stopped; cases added from now on end as not run

  // Runs until every case and pool has ended, and emits run_started and run_finished. Rethrows an exception of a sink.
  virtual RunResult run(const RunStarted& header) = 0;

  [[nodiscard]] asio::io_context& io() { return io_; }
  // Whether an error has ended the run, so that no case can be added any more.
  [[nodiscard]] virtual bool failed() const { return false; }

 protected:
  CaseExecutor();

  void begin();
  // From now on signals and ticks are told, until close(). tick: RunConfig::tick.
  void watch(std::chrono::milliseconds tick);
  void close();
  // Returns the result of the run, which has ended.
  [[nodiscard]] RunResult result(const Ledger& ledger, bool interrupted, const RunConfig& config) const;

  // Called at the first signal that stops a run, and at a second one. Signals that come together count as one.
  virtual void on_interrupt(bool again) = 0;
  virtual void on_tick() = 0;

  [[nodiscard]] Clock::time_point start() const { return start_; }

 private:
  void watch_signals();

  ProcessSettings settings_;
  asio::io_context io_{1};
  asio::signal_set signals_;
  Alarm clock_{io_};
  bool watching_ = false;
  std::optional<std::chrono::steady_clock::time_point> first_signal_;
  bool second_signal_ = false;
  Clock::time_point start_;
  double cpu_before_ = 0;
};

// Like run_cases and run_stream of run.h, on a given runner. jobs: number of cases of the stream that may run at once.
RunResult run_cases(CaseExecutor& runner, const std::vector<Item>& cases, const RunStarted& header);
RunResult run_stream(CaseExecutor& runner, int fd, const ReadCase& read_case, int jobs, const RunStarted& header);

using StartOfRanks = std::function<RankStart(const Item& named)>;

// Triages the failures of a run after its last case (triage_run.cpp): emits a case_replayed for each replay and a
// case_verdict for each failure, and writes its capsule anew. Ends soon after the run is stopped. run: must have a
// history. fleet: gives the pools their names and places; it must be done. start: how the ranks are started for a case.
asio::awaitable<void> triage_failures(RunContext& run, Fleet& fleet, StartOfRanks start);

// A local run: its fleet, and everything that can stop it.
class Runner : public CaseExecutor, private PoolOwner {
 public:
  // slots: FleetSettings::slots.
  Runner(const RunConfig& config, EventSink& sink, std::optional<int> slots);

  std::size_t add(Item named) override;
  void no_more_cases() override { fleet_.no_more_cases(); }
  RunResult run(const RunStarted& header) override;
  [[nodiscard]] bool failed() const override { return error_ != nullptr; }

 private:
  void on_interrupt(bool again) override;
  void on_tick() override;
  struct Program {
    OwnRanks own;  // what they change for its cases; `slots` is set to 0
    RunConfig config;
    std::optional<ForkServer> fork_server;
    std::vector<std::size_t> asked;  // the jobs about which the adapter was asked
    bool is_needed = false;          // it has got a case
  };

  RunContext& home(int /*pool*/, int /*program*/, const FleetClient* /*wanted_by*/) override { return context_; }
  RankStart start_of(int /*pool*/, int program) override {
    Program& from = *programs_.at(static_cast<std::size_t>(program));
    return {&from.config, from.fork_server ? &*from.fork_server : nullptr};
  }
  int add_program(OwnRanks own);
  int program_of(const Item& named);
  void fail(const std::exception_ptr& error);
  void abandon();
  [[nodiscard]] bool done() const { return fleet_.done() && !triaging_; }
  bool begin_triage();
  void stop_watching_if_done();
  void go_on(Clock::duration paused);

  PoolHost host_;
  RunContext context_;
  std::vector<std::unique_ptr<Program>> programs_;  // by number; 0 is the program of the run itself
  FleetClient client_;
  Fleet fleet_;
  JobControl job_control_;
  Alarm global_timeout_;
  std::exception_ptr error_;  // the first error
  bool will_start_fork_servers_ = false;
  bool triage_begun_ = false;
  bool triaging_ = false;
};

}  // namespace cp_pool
