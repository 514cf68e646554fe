#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/execution_options.h"

namespace cp_pool {

struct SearchOptions {
  std::vector<std::string> edits;    // fields that every case has
  std::vector<std::string> filters;  // a case that any of them selects may be drawn; empty means all
  std::chrono::milliseconds time{60'000};
  int cases = 0;
  std::optional<std::uint64_t> seed;  // nullopt means another one each time
  bool keep_going = false;
  std::chrono::milliseconds shrink_time{120'000};
  bool record = true;  // failing cases are added to the file
  std::string found;   // a file; "off" keeps nothing; empty means the worker's own file
  ExecutionOptions execution;
};

}  // namespace cp_pool
