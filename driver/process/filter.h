// Runs a program that reads its stdin to the end and answers on its stdout.
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

// env: added to this process's environment. Gives it `input` and waits for its end and that of its outputs; its
// children die with it only if they do not leave its process group. Call it on the main thread. Throws SpawnError
// (spawn.h) if it cannot be started, else std::system_error.
Filtered run_filter(const std::vector<std::string>& argv, const std::string& input,
                    std::vector<std::pair<std::string, std::string>> env = {});

}  // namespace cp_pool
