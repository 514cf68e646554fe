// The cases of an earlier run that failed or were not judged: `cp-pool run --rerun-failed EVENTS`,
// `cp-pool submit --rerun-failed EVENTS`.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"
#include "driver/events.h"

namespace cp_pool {

struct FailedCase {
  std::string id;
  std::optional<Case> c;  // none: the file does not hold it, because the case had not started
};

struct FailedCases {
  // Of each case the run that counts (counted_runs.h): there it neither passed nor was skipped, each time it ran, or
  // the driver died before it came to the case.
  std::set<std::string> ids;
  std::vector<FailedCase> cases;  // these, in the order of the file, each once
  std::string title;              // of that run's matrices
  std::string size;
  // The file ends before a run did, and does not say which cases that had not come to: it is of a stream, or of a
  // cp-pool that did not write them down.
  bool unknown_rest = false;
};

// Reads the events file of the earlier run, and shows each event to `also`. Throws CommandError (bad_input): the file
// cannot be read, is no events file, or holds no run.
FailedCases read_failed_cases(const std::filesystem::path& events_file,
                              const std::function<void(const Event&)>& also = nullptr);

// Throws CommandError if nothing failed (nothing_selected), or if the file does not say what did (bad_input). Warns of
// what it does not say.
void expect_failures(const FailedCases& failed, const std::filesystem::path& events_file);

}  // namespace cp_pool
