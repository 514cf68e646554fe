// What earlier runs say of the cases of this one: which of them failed (`cp-pool run --rerun-failed EVENTS`,
// `cp-pool submit --rerun-failed EVENTS`), how long their steps took (`cp-pool run --mode perf --baseline FILE`), the
// trend of each case in reports, and the order of `cp-pool run --order history` and `history:FILE`. Whatever reads an
// events file here throws CommandError (bad_input) if the file cannot be read, is no events file, or holds no run.
#pragma once

#include <map>
#include <set>
#include <span>

#include "driver/cli/history/run_records.h"
#include "driver/cli/select/selection.h"

namespace cp_pool {

struct FailedCase {
  std::string id;
  std::optional<Payload> payload;  // nullopt if the case had not started: then the file does not hold it
};

struct FailedCases {
  // Cases that failed in the run that counts for them (run_log.h). A case is here if one of its runs there neither
  // passed nor was skipped, or if the driver died before all of them had ended.
  std::set<std::string> ids;
  std::vector<FailedCase> cases;              // the same cases, in the order of the file
  std::map<std::string, double> duration_ms;  // by ID, of the last run of each case that a run reached
  std::string title;                          // the title of the last run: its matrices
  std::string size;
  // True if the file ends before a run did and does not say which cases were left: the run was of a stream, or its
  // version of cp-pool did not write the IDs of its cases.
  bool unknown_rest = false;
};

// Reads the events file of the earlier run.
FailedCases read_failed_cases(const std::filesystem::path& events_file);

// Throws CommandError if nothing failed (nothing_selected), or if the file does not say which cases failed (bad_input).
// Warns if it does not name all of them.
void expect_failures(const FailedCases& failed, const std::filesystem::path& events_file);

struct PerfBaseline {
  struct Entry {
    double ms = 0;  // duration of a step
    Payload payload;
    std::string device;  // empty if the file does not name it
    bool graph = false;  // the steps were replays of a CUDA graph
  };

  std::string name;                    // path of the events file
  std::map<std::string, Entry> cases;  // by case ID; the last run of a case that ran several times
};

// Reads the events file of the earlier run. Throws CommandError (bad_input) if it has no times, too.
PerfBaseline read_perf_baseline(const std::filesystem::path& events_file);

// Sets the baseline time of each case that the baseline has. Equal IDs do not imply equal problems: --size small and
// --size full share them. Throws CommandError (bad_input), with an example, if a case is another problem in the
// baseline, ran on another device, or if only one of the two runs used --graph.
void compare_with(const PerfBaseline& baseline, const RunConfig& config, std::span<Item> cases);

// To be called after compare_with. Returns a sentence about the cases that --max-ratio cannot judge because the
// baseline lacks them; empty if it judges all. Throws CommandError (bad_input) if it could judge none.
std::string left_unjudged(const PerfBaseline& baseline, std::span<const Item> cases);

// Compares the cases with the run of --baseline (of --mode perf), if one is given, and warns of those that --max-ratio
// cannot judge. Throws CommandError (bad_input).
void compare_with_baseline(const ExecutionOptions& options, std::vector<Item>& cases);

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
  std::set<std::string> failed;               // IDs, as `--rerun-failed` takes them
  std::map<std::string, double> duration_ms;  // by ID, of the last run of the case
};

// Takes the last run of each of these cases by the same implementation. `implementation` is that of cases which name
// none themselves.
CaseHistory case_history(const CaseTrends& trends, std::span<const Item> cases, const std::string& implementation);

// Reads the times of --shard-times.
void read_shard_times(SelectionOptions& options);

// Returns the order in which to run cases, as indices: first those that failed, then those without a known duration,
// then the others, longest first. Cases that share expected results (driver/core/payload.h) stay together, at the
// place of the first of them. Ties keep the listed order.
std::vector<std::size_t> ordered_by_history(std::span<const Item> cases, const CaseHistory& history);

}  // namespace cp_pool
