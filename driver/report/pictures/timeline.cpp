#include "driver/report/pictures/timeline.h"

#include <algorithm>
#include <tuple>

#include "driver/report/case_runs.h"
#include "driver/report/failure_text.h"

namespace cp_pool {

Timeline::Timeline(const RunReport& run) : end_{run.last_ms} {
  std::size_t drawn = 0;
  const auto tries = run.tries_by_pool();
  for (std::size_t i = 0; i < run.pools.size(); ++i) {
    const auto& [id, spawned, ready, retired] = run.pools[i];
    if (!spawned || !spawned->at_ms) continue;
    TimelinePool& pool = pools_.emplace_back();
    pool.id = id;
    pool.world_size = spawned->world_size;
    pool.spawned = *spawned->at_ms;
    if (ready && ready->at_ms) {
      pool.ready = ready->at_ms;
      pool.spawned = std::min(pool.spawned, std::max(0.0, *ready->at_ms - ready->spawn_to_ready_ms));
    }
    if (retired && retired->at_ms) {
      pool.retired = retired->at_ms;
      pool.reason = retired->reason;
      pool.detail = retired->detail;
    }
    for (const ReportedTry* const each : tries[i]) {
      const CaseFinished& event = each->end;
      pool.cases.push_back({.name = case_name(event),
                            .outcome = event.outcome,
                            .urgency = urgency_of(event),
                            .word = std::string{outcome_word(event)},
                            .begin = each->sent.empty() ? *event.at_ms - event.duration_ms : each->sent.back().at_ms,
                            .end = *event.at_ms,
                            .duration = event.duration_ms});
    }
    drawn += pool.cases.size();
  }
  for (const ReportedCase& c : run.cases) {
    without_pool_ += static_cast<std::size_t>(std::ranges::count_if(c.tries, [&](const ReportedTry& each) {
      return each.end.at_ms && (each.end.pool || &each == &c.tries.back());
    }));
  }
  without_pool_ -= drawn;
  for (const RunPaused& pause : run.pauses) {
    if (pause.at_ms) pauses_.push_back({.at = *pause.at_ms, .length = pause.paused_ms});
  }
}

std::vector<std::vector<std::size_t>> Timeline::lanes() const {
  std::vector<std::size_t> order(pools_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(
      order, {}, [&](std::size_t i) { return std::tuple{pools_[i].world_size, pools_[i].id.key, pools_[i].spawned}; });
  std::vector<std::vector<std::size_t>> lanes;
  for (const std::size_t i : order) {
    const auto free = std::ranges::find_if(lanes, [&](const std::vector<std::size_t>& lane) {
      const TimelinePool& last = pools_[lane.back()];
      return last.id.key == pools_[i].id.key && end_of(last) <= pools_[i].spawned;
    });
    if (free != lanes.end()) {
      free->push_back(i);
    } else {
      lanes.push_back({i});
    }
  }
  return lanes;
}

}  // namespace cp_pool
