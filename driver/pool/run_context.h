// A run as those see it that run its cases: what it wants, where its events go, and whether it is stopped.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "driver/clock.h"
#include "driver/events.h"
#include "driver/output_bits.h"
#include "driver/pool/pool_history.h"
#include "driver/pool/pool_host.h"
#include "driver/run.h"

namespace cp_pool {

// What is said of cases of a run that is stopped.
inline constexpr const char* kInterrupted = "the run was interrupted";
inline std::string out_of_time(const RunConfig& config) {
  return "the run's " + std::to_string(config.global_timeout.count()) + " ms were over (--global-timeout)";
}

// Why no further case may start. What is set stays set.
struct StopState {
  bool interrupted = false;      // SIGINT or SIGTERM: running cases end as cancelled
  bool kill_at_once = false;     // a second one: no grace for anybody
  bool global_timeout = false;   // running cases end as timeout
  bool enough_failures = false;  // --max-fail: running cases go on
  bool service_ends = false;     // that runs the cases: likewise
  bool internal_error = false;   // an exception in the driver: as interrupted
  bool outdated = false;         // what the ranks run has changed: as interrupted

  [[nodiscard]] bool no_new_cases() const { return abandon_running() || enough_failures || service_ends; }
  [[nodiscard]] bool abandon_running() const { return cancels() || global_timeout; }
  // Whether cases that run end as cancelled.
  [[nodiscard]] bool cancels() const { return interrupted || internal_error || outdated; }
  [[nodiscard]] const char* why_cancelled() const {
    return outdated && !interrupted ? "what the ranks run has changed" : kInterrupted;
  }
};

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
  int failures = 0;                    // cases that ended as one
  std::uint64_t status_requests = 0;   // RunConfig::status_requests as pools have to answer it
  OutputBits output_bits;              // of the cases that passed, with config.compare_runs
  std::set<std::string> lost_outputs;  // options whose loss has been told
  std::set<std::string> diagnosed;     // IDs of cases that run several times, and whose failure has a diagnosis

  std::optional<PoolHistory> history;  // if somebody wants to know

  // Says when the event happened, if its type has at_ms.
  void emit(Event event) {
    const double now = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    std::visit(
        [now](auto& e) {
          if constexpr (requires { e.at_ms; }) e.at_ms = now;
        },
        event);
    if (history && std::holds_alternative<PoolReady>(event)) history->note_ready(std::get<PoolReady>(event));
    sink.on_event(event);
  }
  // option: whose file cannot be written; message: one line that names it and the cause.
  void lose_output(const std::string& option, std::string message) {
    if (lost_outputs.insert(option).second) emit(OutputLost{option, std::move(message)});
  }
  // Of a case, as soon as it is known.
  void count_failure() {
    ++failures;
    if (config.max_failures <= 0 || failures < config.max_failures || stop.enough_failures) return;
    stop.enough_failures = true;
    host.notify_all();
  }
};

}  // namespace cp_pool
