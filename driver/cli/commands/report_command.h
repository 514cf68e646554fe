#pragma once

#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/history/case_trends.h"

namespace cp_pool {

struct ReportOptions {
  std::vector<std::string> files;  // event streams, as --events writes them
  ExecutionOptions execution;      // only its views are used
  std::string id = "";             // the only case to be shown; empty means all
  bool whole = false;              // the shards among the runs have to make up their whole selection
  bool partial = false;            // they need not, but what is missing is told
  CaseTrends trends = {};          // added to cases whose events have no trend
};

// Shows the runs in the files as one, and returns its exit code. Throws CommandError.
int report_runs(const ReportOptions& options);

}  // namespace cp_pool
