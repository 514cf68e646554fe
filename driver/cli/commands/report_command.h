#pragma once

#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/history/case_trends.h"

namespace cp_pool {

struct ReportOptions {
  std::vector<std::string> files;  // of events
  ExecutionOptions execution;      // its views alone
  std::string id = "";             // of the only case to be shown; empty: all
  CaseTrends trends = {};          // of cases whose events say nothing of earlier runs
};

// Shows the runs in the files as one, and returns its exit code. Throws CommandError.
int report_runs(const ReportOptions& options);

}  // namespace cp_pool
