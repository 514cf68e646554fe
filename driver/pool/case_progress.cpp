#include "driver/pool/case_progress.h"

#include <algorithm>
#include <cmath>

#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::chrono::seconds kBetweenPhases{1};
constexpr std::size_t kMostBytes = 400;  // to which a worker's text is cut

double plausible(double ms) {
  return std::isfinite(ms) && ms > 0 ? ms : 0;
}

}  // namespace

std::optional<bool> ProgressWatch::take(Clock::time_point now) {
  if (now < next()) return std::nullopt;
  const bool slow = now >= next_slow();
  while (now >= next_slow()) slow_after_ *= 2;
  reported_ = now;
  reported_phase_ = phase_;
  return slow;
}

Clock::time_point ProgressWatch::next() const {
  return phase_ == reported_phase_ ? next_slow() : std::min(reported_ + kBetweenPhases, next_slow());
}

std::vector<RankStanding> rank_standings(const std::optional<protocol::PongEvent>& pong, int world_size,
                                         bool reads_during_cases) {
  std::vector<RankStanding> out;
  const auto add_silent = [&out](int rank) {
    RankStanding& silent = out.emplace_back();
    silent.rank = rank;
    silent.silent = true;
  };
  if (!pong) {
    if (reads_during_cases) add_silent(0);
    return out;
  }
  for (int rank = 0; rank < world_size; ++rank) {
    const auto told = std::ranges::find(pong->phases, rank, &protocol::RankPhase::rank);
    if (told != pong->phases.end()) {
      out.push_back({{.rank = rank,
                      .phase = protocol::cut_text(told->phase, kMostBytes),
                      .ms = plausible(told->ms),
                      .operation = protocol::cut_text(told->operation, kMostBytes),
                      .operation_ms = plausible(told->operation_ms)}});
    } else if (std::ranges::count(pong->ranks, rank) > 0) {
      out.emplace_back().rank = rank;
    } else if (!pong->phases.empty()) {
      add_silent(rank);
    }
  }
  return out;
}

}  // namespace cp_pool
