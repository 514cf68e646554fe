// Where the ranks of a case stand, from the answer of their worker to a ping.
#pragma once

#include <optional>
#include <vector>

#include "driver/events.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// By rank, each of the group once at most; empty: nobody knows. pong: nullopt if none came in time. A worker that tells
// phases tells them of every rank that answers; without phases it may name rank 0 alone. reads_during_cases: it would
// have answered, were its rank 0 able to.
std::vector<RankStanding> rank_standings(const std::optional<protocol::PongEvent>& pong, int world_size,
                                         bool reads_during_cases);

}  // namespace cp_pool
