#include "driver/pool/rank_standings.h"

#include <algorithm>
#include <cmath>

#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostBytes = 400;  // to which a worker's text is cut

double plausible(double ms) {
  return std::isfinite(ms) && ms > 0 ? ms : 0;
}

}  // namespace

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
      out.push_back({.rank = rank,
                     .phase = protocol::cut_text(told->phase, kMostBytes),
                     .ms = plausible(told->ms),
                     .operation = protocol::cut_text(told->operation, kMostBytes),
                     .operation_ms = plausible(told->operation_ms)});
    } else if (std::ranges::count(pong->ranks, rank) > 0) {
      out.emplace_back().rank = rank;
    } else if (!pong->phases.empty()) {
      add_silent(rank);
    }
  }
  return out;
}

}  // namespace cp_pool
