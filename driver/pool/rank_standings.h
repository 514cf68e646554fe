// Works out from the worker's answer to a ping where the ranks of a case stand.
#pragma once

#include <optional>
#include <vector>

#include "driver/events.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Returns the standings in the order of ranks, each rank at most once; empty if nothing is known. pong: nullopt if none
// came in time. A worker that reports phases does so for every rank that answers; a worker that does not may name rank
// 0 alone. reads_during_cases: rank 0 reads requests while a case runs, so without a pong it counts as silent.
std::vector<RankStanding> rank_standings(const std::optional<protocol::PongEvent>& pong, int world_size,
                                         bool reads_during_cases);

}  // namespace cp_pool
