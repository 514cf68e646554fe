#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/select/selection_options.h"
#include "driver/cli/service_use.h"

namespace cp_pool {

struct SubmitOptions {
  std::string case_argument;                          // an ID, a file, JSON, or "-" for stdin; empty with rerun_failed
  std::optional<std::filesystem::path> rerun_failed;  // the events file of an earlier run, whose failed cases are run
  SelectionOptions selection;  // where an ID is looked up: in all shipped matrices, if none is named
  ExecutionOptions execution;
  ServiceOptions service;
  std::vector<std::string> edits;  // "key=value", in order
  bool json = false;
  int jobs = 1;  // the number of cases of a stream that may run at once
};

}  // namespace cp_pool
