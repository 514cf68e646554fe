// A local run: its fleet, and everything that can stop it.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "driver/core/clock.h"
#include "driver/core/run.h"
#include "driver/os/process_settings.h"
#include "driver/pool/case_executor.h"
#include "driver/pool/fleet.h"
#include "driver/pool/fleet_client.h"
#include "driver/pool/job_control.h"
#include "driver/pool/run_context.h"
#include "driver/pool/triage_run.h"
#include "driver/ranks/fork_server.h"
#include "driver/ranks/pool_host.h"

namespace cp_pool {

class Runner : public CaseExecutor, private PoolOwner {
 public:
  // slots: FleetSettings::slots.
  Runner(const RunConfig& config, EventSink& sink, std::optional<int> slots);

  std::size_t add(const Item& named) override;
  void no_more_cases() override { fleet_.no_more_cases(); }
  RunResult run(const RunStarted& header) override;
  [[nodiscard]] asio::io_context& io() override { return io_; }
  [[nodiscard]] bool failed() const override { return error_ != nullptr; }

 private:
  // How the ranks of pools are started.
  struct Program {
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
  int add_program(RunConfig config);
  int program_of(const Item& named);
  void start_fork_servers();
  std::vector<std::string> cases_to_ask_about(int program);
  void skip(int program, const std::vector<std::string>& reasons);
  void fail(const std::exception_ptr& error);
  void abandon();
  [[nodiscard]] bool done() const { return fleet_.done() && !triaging_; }
  bool begin_triage();
  void stop_watching_if_done();
  void go_on(Clock::duration paused);
  void watch_signals();
  void tell_stopping(RunStopping::Reason reason);
  void watch_global_timeout();
  void watch_clock();

  ProcessSettings settings_;
  asio::io_context io_{1};
  PoolHost host_;
  RunContext context_;
  std::vector<std::unique_ptr<Program>> programs_;  // by number; 0 is the program of the run itself
  std::map<OwnRanks, int> program_numbers_;  // numbers of the other programs; OwnRanks::slots is set to 0 in the keys
  FleetClient client_;
  Fleet fleet_;
  asio::signal_set signals_;
  JobControl job_control_;
  Timer global_timeout_;
  asio::steady_timer clock_;
  std::chrono::steady_clock::time_point first_signal_;
  std::exception_ptr error_;  // the first error
  bool will_start_fork_servers_ = false;
  std::optional<TriageRun> triage_;
  bool triaging_ = false;
};

}  // namespace cp_pool
