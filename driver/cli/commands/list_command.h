#pragma once

#include "driver/cli/commands/command.h"
#include "driver/cli/config/case_overrides.h"
#include "driver/cli/select/selection_options.h"
#include "driver/cli/worker_command.h"

namespace cp_pool {

struct ListOptions {
  SelectionOptions selection;
  WorkerChoice worker;         // only its adapter is used: it says which cases it would skip
  std::string format = "ids";  // ids | ctest | gtest
  std::string test_args;       // for ctest: further arguments of each call of `run`
  OverridesOfRun overrides;    // their keys xfail and skip say what is expected of a case
  bool json = false;
  bool count = false;
};

}  // namespace cp_pool
