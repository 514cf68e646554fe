// The command line of cp-pool-worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/fault.h"

namespace cp_pool {

inline constexpr int kExitUsage = 2;

struct Options {
  std::vector<Fault> faults;
  bool rehearses = true;
  std::optional<std::string> case_file;
  // Set if there is nothing to run: --help, --version or a usage error.
  std::optional<int> exit_code;
  std::string message;  // then
};

Options parse_options(int argc, char** argv);

}  // namespace cp_pool
