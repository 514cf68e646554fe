#pragma once

#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/execution_options.h"

namespace cp_pool {

struct ReportOptions {
  std::vector<std::string> files;  // of events
  ExecutionOptions execution;      // its views alone
  std::string id = "";             // of the only case to be shown; empty: all
};

// Shows the runs in the files as one, and returns its exit code. Throws CommandError.
int report_runs(const ReportOptions& options);

}  // namespace cp_pool
