// What earlier runs say of how long cases took and which failed: `cp-pool run --order history`, `history:FILE`.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "driver/cli/history/case_trends.h"
#include "driver/run.h"

namespace cp_pool {

struct CaseHistory {
  std::set<std::string> failed;               // IDs, as `--rerun-failed` takes them (failed_cases.h)
  std::map<std::string, double> duration_ms;  // by ID, of the last time that the case was run
};

// Reads the events file of the earlier run. Throws CommandError (bad_input): the file cannot be read, is no events
// file, or holds no run.
CaseHistory read_case_history(const std::filesystem::path& events_file);
// Of each case its last run.
CaseHistory case_history(const CaseTrends& trends);

// The order in which to run cases, as indices: first those that failed, then those of which no time is known, then the
// longest. Cases that share expected results (driver/problem_group.h) stay together: all of them have the place of the
// first. Of equal ones the first listed is the first.
std::vector<std::size_t> ordered_by_history(std::span<const NamedCase> cases, const CaseHistory& history);

}  // namespace cp_pool
