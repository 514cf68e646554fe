#include "driver/reporters/pictures/timeline.h"

#include <algorithm>
#include <tuple>
#include <variant>

#include "driver/reporters/case_runs.h"
#include "driver/reporters/failure_text.h"

namespace cp_pool {

void Timeline::add(const Event& event) {
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { e.at_ms; }) {
          if (!e.at_ms) return;
          end_ = std::max(end_, *e.at_ms);
          on(e);
        }
      },
      event);
}

// Searches from the back: events belong to the latest pool of this ID.
TimelinePool* Timeline::find(const PoolId& id) {
  const auto same = [&](const TimelinePool& pool) {
    return pool.id.key == id.key && pool.id.generation == id.generation;
  };
  const auto found = std::find_if(pools_.rbegin(), pools_.rend(), same);
  return found == pools_.rend() ? nullptr : &*found;
}

void Timeline::on(const PoolSpawned& event) {
  TimelinePool& pool = pools_.emplace_back();
  pool.id = event.pool;
  pool.world_size = event.world_size;
  pool.spawned = *event.at_ms;
}

void Timeline::on(const PoolReady& event) {
  TimelinePool* const pool = find(event.pool);
  if (pool == nullptr) return;
  pool->ready = event.at_ms;
  pool->spawned = std::min(pool->spawned, std::max(0.0, *event.at_ms - event.spawn_to_ready_ms));
}

void Timeline::on(const PoolRetired& event) {
  TimelinePool* const pool = find(event.pool);
  if (pool == nullptr) return;
  pool->retired = event.at_ms;
  pool->reason = event.reason;
  pool->detail = event.detail;
}

void Timeline::on(const CaseStarted& event) {
  running_[event.index] = *event.at_ms;
}

void Timeline::on(const CaseTried& event) {
  if (event.pool) on(static_cast<const CaseFinished&>(event));
}

void Timeline::on(const CaseFinished& event) {
  const auto sent = running_.extract(event.index);
  TimelinePool* const pool = event.pool ? find(*event.pool) : nullptr;
  if (pool == nullptr) {
    ++without_pool_;
    return;
  }
  pool->cases.push_back({.name = case_name(event),
                         .outcome = event.outcome,
                         .urgency = urgency_of(event),
                         .word = std::string{outcome_word(event)},
                         .begin = sent ? sent.mapped() : *event.at_ms - event.duration_ms,
                         .end = *event.at_ms,
                         .duration = event.duration_ms});
}

void Timeline::on(const RunPaused& event) {
  pauses_.push_back({.at = *event.at_ms, .length = event.paused_ms});
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
