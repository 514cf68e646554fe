// Asks a Python adapter without starting ranks which cases it would skip, and how much each rank would compute.
#pragma once

#include <string>
#include <vector>

#include "driver/cli/worker_command.h"
#include "driver/core/adapter_outlook.h"

namespace cp_pool {

// Each of `case_lines` is a JSON case, as `list --json` prints it. Returns one sentence per case that says why the
// adapter would skip it, empty if the case would run. If the adapter cannot be asked, prints its stderr and throws
// CommandError (infra).
std::vector<std::string> skips_of(const WorkerCommand& command, const std::vector<std::string>& case_lines);

// Returns what the adapter would make of a case, with the pairs that each rank would compute.
// The case is as for skips_of, with the key "pairs": true. Throws as skips_of does.
AdapterOutlook outlook_of(const WorkerCommand& command, const std::string& case_line);

// Loads the adapter without asking about cases. Returns why it cannot be loaded, with its traceback, or an empty string
// if it can.
std::string loading_error(const WorkerCommand& command);

// The Python interpreter of an adapter and the versions of its packages, or why it cannot be used.
struct Interpreter {
  std::string program;  // sys.executable
  std::string python;   // the version, as in the next two; empty if the package is missing
  std::string torch;
  std::string cp_pool;
  std::string trouble;  // why it cannot be used, in lines; empty if it runs and has both packages
};
Interpreter interpreter_of(const WorkerCommand& command);

}  // namespace cp_pool
