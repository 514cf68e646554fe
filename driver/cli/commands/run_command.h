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

struct RunCommandOptions {
  SelectionOptions selection;
  std::optional<std::filesystem::path> rerun_failed;  // events of an earlier run, which give selection.ids
  ExecutionOptions execution;
  ServiceOptions service;
  RecordOptions record;        // used by `run` alone
  std::string record_command;  // the command line that the record keeps
  Order order;
  OverridesOfRun overrides;      // from cp-pool.toml
  bool shard_by_runner = false;  // a test runner chose the shard, which may be empty (config/test_environment.h)
  int repeat = 1;                // how often each case runs
  bool deterministic = false;    // every case asks for deterministic kernels
};

// Adds all options of `run`, which are also the keys of cp-pool.toml.
void add_options_of_run(CLI::App& command, RunCommandOptions& options);

}  // namespace cp_pool
