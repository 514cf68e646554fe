// Runs a program that reads its stdin to the end and writes its answer to stdout.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "driver/process/exit_status.h"

namespace cp_pool {

struct Filtered {
  ExitStatus exit;
  std::string out;
  std::string err;
};

// Runs the program with `input` as its stdin, and waits until it has ended and its outputs are closed. Its children are
// killed with it only if they stay in its process group. env: added to this process's environment. To be called on the
// main thread. Throws SpawnError (spawn.h) if the program cannot be started, else std::system_error.
Filtered run_filter(const std::vector<std::string>& argv, const std::string& input,
                    std::vector<std::pair<std::string, std::string>> env = {});

}  // namespace cp_pool
