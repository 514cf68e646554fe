// The command line of cp-pool-worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cp_core/verify/conventions.h"
#include "worker/fault.h"

namespace cp_pool {

inline constexpr int kExitUsage = 2;

struct Options {
  std::vector<Fault> faults;  // those of --inject, then those of CP_POOL_INJECT
  bool rehearses = true;
  verify::Convention cut;  // BuiltinImplementation::cut
  std::optional<std::string> case_file;
  // Set if there is no rank to run: after --help, --version or a usage error.
  std::optional<int> exit_code;
  std::string message;  // text to print if exit_code is set
};

// Parses the command line, and faults in CP_POOL_INJECT.
Options parse_options(int argc, char** argv);

}  // namespace cp_pool
