// Counts the work that the sharding of a case gives to each rank. It says nothing about results: they may be right
// although one rank computes nearly everything.
#pragma once

#include <cstdint>
#include <vector>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool {

// Returns for each rank the number of pairs of a query of its rows and a key that the query sees, summed over the heads
// that the rank computes. Ranks that split the heads among themselves (CommFacts::head_ranks, or the Ulysses groups of
// the convention) each compute their share of the heads for the rows of all of them. Takes time in proportion to the
// number of rows. The sharding must have no sharding_fault.
std::vector<std::int64_t> pairs_by_rank(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding,
                                        int ranks);

}  // namespace cp_pool
