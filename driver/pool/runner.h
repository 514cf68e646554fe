// One run: the lanes, what can stop them, and the books.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "driver/clock.h"
#include "driver/ledger.h"
#include "driver/pool/fork_server.h"
#include "driver/pool/job_control.h"
#include "driver/pool/lane.h"
#include "driver/pool/run_context.h"
#include "driver/pool/slots.h"
#include "driver/process/process_settings.h"
#include "driver/run.h"

namespace cp_pool {

// RunConfig::max_busy_ranks, resolved.
int busy_ranks(const RunConfig& config);

class Runner {
 public:
  Runner(const RunConfig& config, EventSink& sink, int busy_ranks);

  // The case must stay alive until it has finished. Returns its index in the events.
  std::size_t add(const NamedCase& named);
  // Every lane ends when it has done what was added.
  void no_more_cases();

  std::function<void(const CaseFinished&)> on_case_finished;  // after its event was emitted
  std::function<void()> on_abandon;  // the run was stopped: what is added from now on ends as not run

  // Runs until every lane has ended; emits run_started and run_finished. Throws what a sink has thrown.
  RunResult run(const RunStarted& header);

  [[nodiscard]] asio::io_context& io() { return io_; }
  // Nothing can be added any more.
  [[nodiscard]] bool failed() const { return error_ != nullptr; }

 private:
  Lane& lane(int world_size);
  void lane_ended(const std::exception_ptr& error);
  void fail(const std::exception_ptr& error);
  void abandon();
  void stop_watching_if_done();
  void go_on(Clock::duration paused, bool ranks_stopped);
  void watch_signals();
  void tell_stopping(RunStopping::Reason reason);
  void watch_global_timeout();
  void watch_clock();

  ProcessSettings settings_;
  asio::io_context io_{1};
  RunContext context_;
  std::optional<ForkServer> fork_server_;
  Ledger ledger_;
  Slots slots_;
  asio::signal_set signals_;
  JobControl job_control_;
  Timer global_timeout_;
  asio::steady_timer clock_;
  std::map<int, std::unique_ptr<Lane>> lanes_;  // by world size
  std::size_t lanes_left_ = 0;
  std::chrono::steady_clock::time_point first_signal_;
  bool closed_ = false;
  std::exception_ptr error_;  // the first
};

}  // namespace cp_pool
