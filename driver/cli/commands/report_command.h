#pragma once

#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/execution_options.h"

namespace cp_pool {

struct ReportOptions {
  std::vector<std::string> files;  // of events
  ExecutionOptions execution;      // its views alone
};

}  // namespace cp_pool
