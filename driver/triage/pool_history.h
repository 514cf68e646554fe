// The history of each pool of a run: the cases that were sent to it, in order, and which of them failed. Triage replays
// it, and capsules keep it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/core/events.h"
#include "driver/core/run.h"

namespace cp_pool {

struct SentCase {
  Item named;
  std::optional<Item> next;  // the case that the worker was asked to prepare for
  std::int64_t seq = 0;
  std::string lines = {};  // the bytes that were written to rank 0's stdin for the case
};

struct HistoryOfFailure {
  CaseFinished event;
  std::size_t place = 0;  // index of the failed case among the cases of its pool
};

class PoolHistory {
 public:
  void add(const PoolId& pool, SentCase sent) { sent_[pool].push_back(std::move(sent)); }
  // Sets SentCase::lines of the case that was added last.
  void note_lines(const PoolId& pool, std::string lines) { sent_.at(pool).back().lines = std::move(lines); }
  // Remembers the ready event of the pool's worker.
  void note_ready(const PoolReady& event) { ready_.insert_or_assign(event.pool, event); }
  // Remembers a case that has failed on a pool and is not retried.
  void note_failure(const CaseFinished& event) {
    const auto sent = sent_.find(*event.pool);
    if (sent == sent_.end() || sent->second.empty() || sent->second.back().seq != event.seq) return;
    failures_.push_back({.event = event, .place = sent->second.size() - 1});
  }
  // Called when the pool gets no more cases. Forgets the pool unless a case failed on it.
  void close(const PoolId& pool) {
    if (std::ranges::any_of(failures_, [&](const auto& failure) { return *failure.event.pool == pool; })) return;
    sent_.erase(pool);
    ready_.erase(pool);
  }

  [[nodiscard]] const std::vector<HistoryOfFailure>& failures() const { return failures_; }
  // Returns the cases that were sent to the pool of a failure, up to the failed case, which is the last.
  [[nodiscard]] std::span<const SentCase> until(const HistoryOfFailure& failure) const {
    return std::span(sent_.at(*failure.event.pool)).first(failure.place + 1);
  }
  [[nodiscard]] const protocol::ReadyEvent& worker_of(const HistoryOfFailure& failure) const {
    return ready_.at(*failure.event.pool);
  }

 private:
  std::map<PoolId, std::vector<SentCase>> sent_;
  std::map<PoolId, protocol::ReadyEvent> ready_;
  std::vector<HistoryOfFailure> failures_;
};

}  // namespace cp_pool
