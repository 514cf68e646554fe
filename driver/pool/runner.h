// One run: its fleet, and what can stop it.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "driver/clock.h"
#include "driver/pool/fleet.h"
#include "driver/pool/fork_server.h"
#include "driver/pool/job_control.h"
#include "driver/pool/run_context.h"
#include "driver/process/process_settings.h"
#include "driver/run.h"

namespace cp_pool {

// Adds SIGHUP, unless the process ignores it.
void watch_for_hangup(asio::signal_set& signals);

class Runner {
 public:
  // slots: as FleetSettings.
  Runner(const RunConfig& config, EventSink& sink, std::optional<int> slots);

  // The case must stay alive until it has finished. Returns its index in the events.
  std::size_t add(const NamedCase& named) { return fleet_.add(named); }
  // Every pool ends when what was added is done.
  void no_more_cases() { fleet_.no_more_cases(); }

  std::function<void(const CaseFinished&)> on_case_finished;  // after its event was emitted
  std::function<void()> on_abandon;  // the run was stopped: what is added from now on ends as not run

  // Runs until every pool has ended; emits run_started and run_finished. Throws what a sink has thrown.
  RunResult run(const RunStarted& header);

  [[nodiscard]] asio::io_context& io() { return io_; }
  // Nothing can be added any more.
  [[nodiscard]] bool failed() const { return error_ != nullptr; }

 private:
  void fail(const std::exception_ptr& error);
  void abandon();
  void stop_watching_if_done();
  void go_on(Clock::duration paused, bool ranks_stopped);
  void watch_signals();
  void tell_stopping(RunStopping::Reason reason);
  void watch_global_timeout();
  void watch_files();
  void watch_clock();

  ProcessSettings settings_;
  asio::io_context io_{1};
  RunContext context_;
  std::optional<ForkServer> fork_server_;
  Fleet fleet_;
  asio::signal_set signals_;
  JobControl job_control_;
  Timer global_timeout_;
  asio::steady_timer files_;
  asio::steady_timer clock_;
  std::chrono::steady_clock::time_point first_signal_;
  std::exception_ptr error_;  // the first
};

}  // namespace cp_pool
