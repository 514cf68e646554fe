#pragma once

#include "driver/cli/commands/command.h"
#include "driver/cli/config/case_overrides.h"
#include "driver/cli/select/selection_options.h"
#include "driver/cli/worker_command.h"

namespace cp_pool {

struct ListOptions {
  SelectionOptions selection;
  WorkerChoice worker;         // its adapter alone: say which cases it would skip
  std::string format = "ids";  // ids | ctest | gtest
  std::string test_args;       // of ctest: words that each call of `run` has besides
  OverridesOfRun overrides;    // say what is expected of cases
  bool json = false;
  bool count = false;
};

}  // namespace cp_pool
