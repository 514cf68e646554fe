// What came of cases in the recorded runs before: the trend of each case in reports, and `--order history`.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "driver/cli/history/run_records.h"
#include "driver/events.h"

namespace cp_pool {

inline constexpr std::size_t kTrendRuns = 10;

// Of each case, by ID, the earlier runs, the oldest first.
using CaseTrends = std::map<std::string, std::vector<EarlierRun>>;

// Of the newest kTrendRuns of these records whose runs were of this size on this device and have ended or were killed;
// before: the ID of a run, which and whose successors do not count; empty: all do. A record that cannot be read does
// not count.
CaseTrends read_case_trends(const std::vector<RunRecord>& records, const std::string& size, const std::string& device,
                            std::string_view before = "");

// Gives every case that has ended its trend, unless it has one, and passes all events on.
class TrendSink : public EventSink {
 public:
  TrendSink(CaseTrends trends, EventSink& next) : trends_{std::move(trends)}, next_{next} {}
  void on_event(const Event& event) override;
  void on_tick() override { next_.on_tick(); }

 private:
  CaseTrends trends_;
  EventSink& next_;
};

}  // namespace cp_pool
