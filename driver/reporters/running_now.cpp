#include "driver/reporters/running_now.h"

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/reporters/text_format.h"

namespace cp_pool {

namespace {

std::string name_of_pool(const PoolId& id) {
  return "pool " + to_string(id);
}

double ms_between(Clock::time_point since, Clock::time_point now) {
  return std::chrono::duration<double, std::milli>(now - since).count();
}

// Of a map's values, the oldest first.
template <class Map, class Since>
auto by_age(const Map& map, Since since) {
  std::vector<const typename Map::mapped_type*> out;
  for (const auto& entry : map) out.push_back(&entry.second);
  std::ranges::stable_sort(out, {}, since);
  return out;
}

}  // namespace

void RunningNow::on_event(const Event& event) {
  const auto now = Clock::now();
  if (const auto* run = std::get_if<RunStarted>(&event)) {
    expected_ = run->cases;
  } else if (const auto* spawned = std::get_if<PoolSpawned>(&event)) {
    pools_[name_of_pool(spawned->pool)] = {.id = spawned->pool,
                                           .ranks = spawned->world_size,
                                           .ready = false,
                                           .spawned = now,
                                           .pids = fmt::format("{}", fmt::join(spawned->pids, ", "))};
  } else if (const auto* ready = std::get_if<PoolReady>(&event)) {
    const auto pool = pools_.find(name_of_pool(ready->pool));
    if (pool != pools_.end()) pool->second.ready = true;
  } else if (const auto* retired = std::get_if<PoolRetired>(&event)) {
    pools_.erase(name_of_pool(retired->pool));
  } else if (const auto* started = std::get_if<CaseStarted>(&event)) {
    cases_[started->index] = {.id = started->id,
                              .pool = name_of_pool(started->pool),
                              .attempt = started->attempt,
                              .since = now,
                              .phase = "",
                              .told = now};
  } else if (const auto* progress = std::get_if<CaseProgress>(&event)) {
    const auto running = cases_.find(progress->index);
    if (running == cases_.end() || running->second.phase == progress->phase) return;
    running->second.phase = progress->phase;
    running->second.told = now;
  } else if (const auto* done = std::get_if<CaseFinished>(&event)) {
    cases_.erase(done->index);
    ++finished_;
  }
}

std::vector<std::string> RunningNow::lines(Clock::time_point now) const {
  std::set<std::string> busy;
  for (const auto& [index, running] : cases_) busy.insert(running.pool);
  std::size_t starting = 0;
  std::size_t idle = 0;
  for (const auto& [name, pool] : pools_) {
    starting += pool.ready ? 0 : 1;
    idle += pool.ready && !busy.contains(name) ? 1 : 0;
  }
  const std::string of = expected_ > 0 ? fmt::format(" of {}", expected_) : "";
  std::vector<std::string> out{fmt::format("{}{} finished; {} running, {} starting, {} idle", finished_, of,
                                           count_of(cases_.size(), "case"), count_of(starting, "pool"),
                                           count_of(idle, "pool"))};
  for (const RunningCase* running : by_age(cases_, &RunningCase::since)) {
    const auto pool = pools_.find(running->pool);
    const std::string ranks =
        pool == pools_.end()
            ? ""
            : fmt::format(" ({}{})", count_of(static_cast<std::size_t>(pool->second.ranks), "rank"),
                          pool->second.pids.empty() ? "" : fmt::format(", processes {}", pool->second.pids));
    const std::string phase = running->phase.empty() ? "no phase reported"
                                                     : fmt::format("in {} for {}", running->phase,
                                                                   format_duration(ms_between(running->told, now)));
    out.push_back(fmt::format("{} has been running for {} on {}{}{}, {}", running->id,
                              format_duration(ms_between(running->since, now)), running->pool, ranks,
                              running->attempt > 1 ? fmt::format(", attempt {}", running->attempt) : "", phase));
  }
  for (const NamedPool* pool : by_age(pools_, &NamedPool::spawned)) {
    if (pool->ready) continue;
    out.push_back(fmt::format("{} has been starting for {}", name_of_pool(pool->id),
                              format_duration(ms_between(pool->spawned, now))));
  }
  return out;
}

}  // namespace cp_pool
