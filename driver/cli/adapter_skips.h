// Asks a Python adapter which cases it would skip, without starting ranks.
#pragma once

#include <string>
#include <vector>

#include "driver/cli/worker_command.h"

namespace cp_pool {

// case_lines: JSON, as list --json prints cases. Returns for each case why it would be skipped, as a sentence; empty:
// it would run. Throws CommandError (infra) if the adapter cannot be asked, after its stderr has been shown.
std::vector<std::string> skips_of(const WorkerCommand& command, const std::vector<std::string>& case_lines);

// The same without cases: why the adapter cannot be loaded, with its traceback; empty: it can.
std::string trouble_of_loading(const WorkerCommand& command);

// What the interpreter of the adapter is and has, or why it cannot be used.
struct Interpreter {
  std::string program;  // sys.executable
  std::string python;   // versions; empty if a package is not there
  std::string torch;
  std::string cp_pool;
  std::string trouble;  // lines; empty if it runs and has both packages
};
Interpreter interpreter_of(const WorkerCommand& command);

}  // namespace cp_pool
