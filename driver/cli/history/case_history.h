// The outcomes and durations of cases in earlier runs: the trend of each case in reports, and the order of
// `cp-pool run --order history` and `history:FILE`.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/cli/history/run_records.h"
#include "driver/cli/select/selection.h"
#include "driver/core/events.h"
#include "driver/core/run.h"

namespace cp_pool {

inline constexpr std::size_t kTrendRuns = 10;

// The earlier runs of each case, oldest first, by its ID and the implementation that computed it, which is known.
using CaseTrends = std::map<std::pair<std::string, std::string>, std::vector<EarlierRun>>;

// Reads the newest kTrendRuns records of runs like `run`: they have its size, its device and one of its
// implementations, and are not going on. If `before` is not empty, the run with this ID and all later ones are left
// out. Records that cannot be read are left out, too.
CaseTrends read_case_trends(const std::vector<RunRecord>& records, const RunStarted& run, std::string_view before = "");

// Passes all events on. Adds its trend to every case that has ended, unless the event has one.
class TrendSink : public EventSink {
 public:
  TrendSink(CaseTrends trends, EventSink& next) : trends_{std::move(trends)}, next_{next} {}
  void on_event(const Event& event) override;
  void on_tick() override { next_.on_tick(); }

 private:
  CaseTrends trends_;
  EventSink& next_;
  RunStarted run_;
};

struct CaseHistory {
  std::set<std::string> failed;               // IDs, as `--rerun-failed` takes them (earlier_run.h)
  std::map<std::string, double> duration_ms;  // by ID, of the last run of the case
};

// Reads the events file of the earlier run. Throws CommandError (bad_input) if the file cannot be read, is no events
// file, or holds no run.
CaseHistory read_case_history(const std::filesystem::path& events_file);
// Takes the last run of each of these cases by the same implementation. `implementation` is that of cases which name
// none themselves.
CaseHistory case_history(const CaseTrends& trends, std::span<const Item> cases, const std::string& implementation);

// Reads the times of --shard-times. Throws CommandError (bad_input).
void read_shard_times(SelectionOptions& options);

// Returns the order in which to run cases, as indices: first those that failed, then those without a known duration,
// then the others, longest first. Cases that share expected results (driver/core/payload.h) stay together, at the
// place of the first of them. Ties keep the listed order.
std::vector<std::size_t> ordered_by_history(std::span<const Item> cases, const CaseHistory& history);

}  // namespace cp_pool
