// What did not go well in an earlier run: `cp-pool run --rerun-failed EVENTS`.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace cp_pool {

struct FailedCases {
  std::set<std::string> ids;  // neither passed nor were skipped, each time they ran; if the driver died, also the rest
  std::string title;          // of that run's matrices
  std::string size;
  // The file ends before a run did, and does not say which cases that had not come to: it is of a stream, or of a
  // cp-pool that did not write them down.
  bool unknown_rest = false;
};

// From the events file of the earlier run. Throws CommandError (bad_input): the file cannot be read, is no events file,
// or holds no run.
FailedCases read_failed_cases(const std::filesystem::path& events_file);

}  // namespace cp_pool
