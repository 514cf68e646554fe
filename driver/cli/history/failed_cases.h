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
#include "driver/core/events.h"

namespace cp_pool {

struct FailedCase {
  std::string id;
  std::optional<Payload> payload;  // nullopt if the case had not started: then the file does not hold it
};

struct FailedCases {
  // Cases that failed in the run that counts for them (counted_runs.h). A case is here if one of its runs there neither
  // passed nor was skipped, or if the driver died before all of them had ended.
  std::set<std::string> ids;
  std::vector<FailedCase> cases;  // the same cases, in the order of the file
  std::string title;              // the title of the last run: its matrices
  std::string size;
  // True if the file ends before a run did and does not say which cases were left: the run was of a stream, or its
  // version of cp-pool did not write the IDs of its cases.
  bool unknown_rest = false;
};

// Reads the events file of the earlier run, and passes each event to `also`. Throws CommandError (bad_input) if the
// file cannot be read, is no events file, or holds no run.
FailedCases read_failed_cases(const std::filesystem::path& events_file,
                              const std::function<void(const Event&)>& also = nullptr);

// Throws CommandError if nothing failed (nothing_selected), or if the file does not say which cases failed (bad_input).
// Warns if it does not name all of them.
void expect_failures(const FailedCases& failed, const std::filesystem::path& events_file);

}  // namespace cp_pool
