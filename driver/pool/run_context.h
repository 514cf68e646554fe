// The state of a run that is needed for running its cases: its settings, the sink of its events, and whether it is
// stopped.
#pragma once

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/core/run.h"
#include "driver/core/run_memory.h"
#include "driver/pool/pool_machine.h"
#include "driver/ranks/pool_host.h"
#include "driver/triage/capsule.h"
#include "driver/triage/pool_history.h"

namespace cp_pool {

struct RunContext {
  RunContext(PoolHost& pool_host, const RunConfig& run_config, EventSink& event_sink)
      : host(pool_host), config(run_config), sink(event_sink) {
    if (config.triage || config.capsules) history.emplace();
  }

  PoolHost& host;
  const RunConfig& config;
  EventSink& sink;
  StopState stop;
  Clock::time_point start = Clock::now();
  int failures = 0;                    // number of cases that count as failures
  std::uint64_t status_requests = 0;   // the last value of RunConfig::status_requests, which pools have to answer
  OutputBits output_bits;              // outputs of passed cases, if config.compare_runs
  std::set<std::string> lost_outputs;  // options whose loss has been reported
  OutputNames output_names;            // of the cases, if workers write dumps or traces
  std::set<std::string> diagnosed;     // IDs of cases that run several times and already have a diagnosis
  KnownMistakes known_mistakes;

  std::optional<PoolHistory> history;  // only if triage or capsules need it

  // Emits the event, after setting its at_ms if its type has it.
  void emit(Event event) {
    const double now = in_ms(Clock::now() - start);
    std::visit(
        [now](auto& e) {
          if constexpr (requires { e.at_ms; }) e.at_ms = now;
        },
        event);
    if (history && std::holds_alternative<PoolReady>(event)) history->note_ready(std::get<PoolReady>(event));
    sink.on_event(event);
  }
  // Called last in a handler, so that a sink that throws leaves nothing undone.
  void tell_stopping(RunStopping::Reason reason) {
    // The grace applies three times: to the answer of a cancelled case, to the shutdown of its pool, and from SIGTERM
    // to SIGKILL.
    constexpr int kGraces = 3;
    const int graces = reason == RunStopping::Reason::killed ? 0 : kGraces;
    emit(RunStopping{.reason = reason, .limit_ms = in_ms(graces * config.grace)});
  }
  // Called once for each case, with the index of its events.
  void note_case(std::size_t index, const Item& named) {
    if (config.dump_dir || (config.perf && config.perf->trace_dir)) output_names.add(index, named);
  }
  // Reports once for each option that its file cannot be written. message: one line that names the file and the cause.
  void lose_output(const std::string& option, std::string message) {
    if (lost_outputs.insert(option).second) emit(OutputLost{option, std::move(message)});
  }
  // Writes the capsule of a failure in the history: at once, so that it exists if the driver is killed later, and again
  // when triage has a verdict.
  void write_capsule(const HistoryOfFailure& failure, const Verdict* verdict = nullptr) {
    try {
      write_failure_capsule(config, *history, failure, verdict);
    } catch (const std::runtime_error& e) {
      lose_output("--capsules", e.what());
    }
  }
  // Called for each case as soon as it is known to be a failure.
  void count_failure() {
    ++failures;
    if (config.max_failures <= 0 || failures < config.max_failures || stop.enough_failures) return;
    stop.enough_failures = true;
    host.notify_all();
  }
};

}  // namespace cp_pool
