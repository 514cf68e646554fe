// Runs a list of cases on warm pools. All of the driver's work behind the command line.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "driver/events.h"

namespace cp_pool {

struct NamedCase {
  std::string id;
  Case c;
  std::string rerun;  // the exact command that reruns this case alone
};

struct RunConfig {
  std::vector<std::string> worker_command;  // argv; the binary is looked up like execvp does
  std::string device = "cpu";
  std::chrono::milliseconds timeout{90000};        // per case, from the line sent
  std::chrono::milliseconds start_timeout{60000};  // spawn to ready
  std::chrono::milliseconds grace{5000};           // SIGTERM to SIGKILL
  std::chrono::milliseconds global_timeout{0};     // of the whole run; 0 = none
  int max_consecutive_timeouts = 3;
  int pool_max_cases = 0;                         // 0 = never
  bool fail_fast = false;                         // the first failure makes the remaining cases not_run
  std::optional<std::filesystem::path> run_dir;   // full stderr and stdout logs per pool; none = not kept
  std::optional<std::filesystem::path> dump_dir;  // passed to the worker with each case
};

struct RunResult {
  RunFinished finished;  // also the last event
};

// Must be called on the main thread (parent-death signals follow the spawning thread). Emits every event of the run,
// run_started first and run_finished last. Pools of different world sizes work side by side; cases of one pool run in
// list order. Never throws for anything a worker does. SIGINT and SIGTERM stop the run: first cleanly, then at once.
RunResult run_cases(const std::vector<NamedCase>& cases, const RunConfig& config, const RunStarted& header,
                    EventSink& sink);

}  // namespace cp_pool
