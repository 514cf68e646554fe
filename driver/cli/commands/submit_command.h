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
  std::string case_argument;                          // an ID, a file, JSON or "-"; empty with rerun_failed
  std::optional<std::filesystem::path> rerun_failed;  // an earlier run's events file: its cases are run instead
  SelectionOptions selection;                         // where an ID is looked up; no matrix = all shipped ones
  ExecutionOptions execution;
  ServiceOptions service;
  std::vector<std::string> edits;  // "key=value", in order
  bool json = false;
  int jobs = 1;  // cases of a stream that may run at once
};

}  // namespace cp_pool
