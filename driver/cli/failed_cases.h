// What did not go well in an earlier run: `cp-pool run --rerun-failed EVENTS`.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace cp_pool {

struct FailedCases {
  std::set<std::string> ids;  // neither passed nor were skipped, each time they ran
  std::string title;          // of that run's matrices
  std::string size;
  bool whole = false;  // false: the file ends before its run did
};

// From the events file of the earlier run. Throws CommandError (bad_input): the file cannot be read, is no events file,
// or holds no run.
FailedCases read_failed_cases(const std::filesystem::path& events_file);

}  // namespace cp_pool
