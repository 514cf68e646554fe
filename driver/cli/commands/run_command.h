#pragma once

#include <filesystem>
#include <optional>

#include "driver/cli/commands/command.h"
#include "driver/cli/config/case_overrides.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/history/run_recorder.h"
#include "driver/cli/select/order.h"
#include "driver/cli/select/selection_options.h"
#include "driver/cli/service_use.h"

namespace cp_pool {

struct RunOptions {
  SelectionOptions selection;
  std::optional<std::filesystem::path> rerun_failed;  // an earlier run's events file; selection.ids come from it
  ExecutionOptions execution;
  ServiceOptions service;
  RecordOptions record;        // of `run` alone
  std::string record_command;  // what the record says was called
  Order order;
  OverridesOfRun overrides;      // of cp-pool.toml
  bool shard_by_runner = false;  // the runner of tests chose the shard (config/test_environment.h): it may be empty
  int repeat = 1;                // how often each case runs
  bool deterministic = false;    // every case asks for deterministic kernels
};

// All of them: the keys of cp-pool.toml.
void add_options_of_run(CLI::App& command, RunOptions& options);

}  // namespace cp_pool
