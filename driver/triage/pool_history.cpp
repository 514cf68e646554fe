#include "driver/triage/pool_history.h"

#include <algorithm>

namespace cp_pool {

void PoolHistory::note_failure(const CaseFinished& event) {
  const auto sent = sent_.find(*event.pool);
  if (sent == sent_.end() || sent->second.empty() || sent->second.back().seq != event.seq) return;
  failures_.push_back({.event = event, .place = sent->second.size() - 1});
}

void PoolHistory::close(const PoolId& pool) {
  const bool wanted =
      std::ranges::any_of(failures_, [&](const HistoryOfFailure& failure) { return *failure.event.pool == pool; });
  if (wanted) return;
  sent_.erase(pool);
  ready_.erase(pool);
}

std::span<const SentCase> PoolHistory::until(const HistoryOfFailure& failure) const {
  const std::vector<SentCase>& sent = sent_.at(*failure.event.pool);
  return std::span(sent).first(failure.place + 1);
}

}  // namespace cp_pool
