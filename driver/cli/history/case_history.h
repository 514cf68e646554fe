// The durations and failures of cases in earlier runs, for `cp-pool run --order history` and `history:FILE`.
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
#include "driver/core/run.h"

namespace cp_pool {

struct CaseHistory {
  std::set<std::string> failed;               // IDs, as `--rerun-failed` takes them (failed_cases.h)
  std::map<std::string, double> duration_ms;  // by ID, of the last run of the case
};

// Reads the events file of the earlier run. Throws CommandError (bad_input) if the file cannot be read, is no events
// file, or holds no run.
CaseHistory read_case_history(const std::filesystem::path& events_file);
// Takes the last run of each of these cases by the same implementation. `implementation` is that of cases which name
// none themselves.
CaseHistory case_history(const CaseTrends& trends, std::span<const Item> cases, const std::string& implementation);

// Returns the order in which to run cases, as indices: first those that failed, then those without a known duration,
// then the others, longest first. Cases that share expected results (driver/core/payload.h) stay together, at the
// place of the first of them. Ties keep the listed order.
std::vector<std::size_t> ordered_by_history(std::span<const Item> cases, const CaseHistory& history);

}  // namespace cp_pool
