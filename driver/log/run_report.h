// What a run came to: its cases with their tries, its pools, its verdicts and finds. Each report that is made at the
// end of a run is a function of it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

// A case was sent to a pool.
struct ReportedSend {
  PoolId pool;
  int attempt = 1;
  double at_ms = 0;
  std::vector<std::pair<double, std::string>> phases = {};  // reported phases, with milliseconds since it was sent
};

struct ReportedTry {
  CaseFinished end;  // how it ended, described as if it were the last try
  // In order: all but the last are of pools that were lost. Empty if the time is unknown.
  std::vector<ReportedSend> sent = {};
};

struct ReportedCase {
  std::vector<ReportedTry> tries;  // at least one

  [[nodiscard]] const CaseFinished& end() const { return tries.back().end; }
};

struct ReportedPool {
  PoolId id;
  std::optional<PoolSpawned> spawned = std::nullopt;
  std::optional<PoolReady> ready = std::nullopt;
  std::optional<PoolRetired> retired = std::nullopt;
};

// A pool and the tries that it ended, in the order in which they ended. Times are milliseconds of the run's clock.
struct PoolLife {
  const ReportedPool* pool;
  double spawned;
  std::optional<double> ready;    // nullopt if it never was
  std::optional<double> retired;  // nullopt if the run ended before
  std::vector<const ReportedTry*> tries = {};
};
// Returns the latest of the pools that has this ID; nullptr if there is none.
template <std::derived_from<PoolLife> Life>
Life* find_pool(std::vector<Life>& lives, const PoolId& id) {
  const auto found = std::find_if(lives.rbegin(), lives.rend(), [&](const Life& life) { return life.pool->id == id; });
  return found == lives.rend() ? nullptr : &*found;
}

// Whose times of phases are kept: the page needs those of the slowest ranks, the trace those of each rank.
enum class PhaseTimes { none, of_slowest_rank, of_each_rank };

struct RunReport {
  explicit RunReport(PhaseTimes phases = PhaseTimes::of_each_rank) : phases_{phases} {}

  // Adds the next event. What no report shows of it is dropped: most of it for a case that passed.
  void add(const Event& event);

  // The pools that say when they were spawned. Tries without times, as in files of earlier versions, are left out.
  [[nodiscard]] std::vector<PoolLife> pool_lives() const;
  // The verdict on a failure; nullptr if there is none.
  [[nodiscard]] const Verdict* verdict_on(const CaseFinished& event) const {
    const auto verdict = verdicts.find(event.index);
    return verdict == verdicts.end() ? nullptr : &verdict->second.verdict;
  }
  // The cases in the order of their list.
  [[nodiscard]] std::vector<const ReportedCase*> listed_cases() const;

  RunStarted header;               // without ids and earlier_ms
  std::deque<ReportedCase> cases;  // in the order in which they ended
  std::vector<ReportedPool> pools;
  std::map<std::size_t, CaseVerdict> verdicts;  // by index of the case
  std::vector<CaseReplayed> replays;
  std::vector<RunPaused> pauses;
  std::vector<SearchFound> found;
  std::optional<SearchFinished> searched;
  std::vector<std::string> notices;  // the first ones of what was told on stderr during the run, and of pools given up
  std::size_t all_notices = 0;       // includes those that are not kept
  double last_ms = 0;                // time of the last event that has one
  RunFinished end;

 private:
  void on(const RunStarted& event);
  void on(const PoolSpawned& event) { pools.push_back({.id = event.pool, .spawned = event}); }
  void on(const PoolReady& event) { pool_of(event.pool).ready = event; }
  void on(const PoolRetired& event) { pool_of(event.pool).retired = event; }
  void on(const CaseStarted& event);
  void on(const CaseProgress& event);
  void on(const CaseTried& event);
  void on(const CaseFinished& event);
  void on(const CaseReplayed& event) { replays.push_back(event); }
  void on(const CaseVerdict& event) { verdicts[event.index] = event; }
  void on(const RunPaused& event) { pauses.push_back(event); }
  void on(const SearchFound& event) { found.push_back(event); }
  void on(const SearchFinished& event) { searched = event; }
  void on(const RunFinished& event) { end = event; }

  ReportedPool& pool_of(const PoolId& id);
  [[nodiscard]] CaseFinished shown_part(CaseFinished event) const;

  struct Unfinished {
    std::vector<ReportedTry> tries;
    std::vector<ReportedSend> sent;  // since the last of the tries
  };
  PhaseTimes phases_;
  std::map<std::size_t, Unfinished> unfinished_;  // by index
};

}  // namespace cp_pool
