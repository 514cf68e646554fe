// What each pool of a run was sent, in order, and which cases failed on it: what a triage replays and a capsule keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/events.h"
#include "driver/run.h"
#include "driver/verdict.h"

namespace cp_pool {

struct SentCase {
  NamedCase named;
  std::optional<NamedCase> next;  // that the worker was told to prepare for
  std::int64_t seq = 0;
  std::string lines;  // the bytes that were written to rank 0's stdin for it
};

struct HistoryOfFailure {
  CaseFinished event;
  std::size_t place = 0;  // of the failed case among those of its pool
};

// By the place of the failure among those of a history.
using Verdicts = std::map<std::size_t, Verdict>;

class PoolHistory {
 public:
  void add(const PoolId& pool, SentCase sent);
  // The lines of the case that was added last.
  void note_lines(const PoolId& pool, std::string lines);
  // What the pool's worker said of itself.
  void note_ready(const PoolReady& event) { ready_.insert_or_assign(key_of(event.pool), event.ready); }
  // A case that was sent to a pool has failed, and is not run again.
  void note_failure(const CaseFinished& event);
  // The pool gets no further case; forgets it unless a case failed on it.
  void close(const PoolId& pool);

  [[nodiscard]] const std::vector<HistoryOfFailure>& failures() const { return failures_; }
  // What the pool of a failure was sent, up to the case that failed, which is the last.
  [[nodiscard]] std::span<const SentCase> until(const HistoryOfFailure& failure) const;
  [[nodiscard]] const protocol::ReadyEvent& worker_of(const HistoryOfFailure& failure) const {
    return ready_.at(key_of(*failure.event.pool));
  }

 private:
  using Key = std::pair<std::string, int>;
  static Key key_of(const PoolId& pool) { return {pool.key, pool.generation}; }

  std::map<Key, std::vector<SentCase>> sent_;
  std::map<Key, protocol::ReadyEvent> ready_;
  std::vector<HistoryOfFailure> failures_;
};

}  // namespace cp_pool
