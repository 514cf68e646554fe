// The outcomes of cases in the recorded runs before this one: the trend of each case in reports, and `--order history`.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/cli/history/run_records.h"
#include "driver/core/events.h"

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

}  // namespace cp_pool
