// The load of a case on each rank, which is known before the case runs: the work that its sharding gives to each rank,
// and device memory. It says nothing about results: they may be right although one rank computes nearly everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool {

// Returns for each rank the number of pairs of a query of its rows and a key that the query sees, summed over the heads
// that the rank computes. Ranks that split the heads among themselves (CommFacts::head_ranks, or the Ulysses groups of
// the convention) each compute their share of the heads for the rows of all of them. Takes time in proportion to the
// number of rows. The sharding must have no sharding_fault.
std::vector<std::int64_t> pairs_by_rank(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding,
                                        int ranks);

// Returns the most bytes that the allocator of one of `ranks` ranks reserves for the case, without memory cached from
// earlier cases. An estimate from the sizes of the tensors, for ranks that share a GPU.
std::size_t estimated_device_bytes(const verify::CanonicalProblem& problem, int ranks);

// Returns why a case, which all ranks of a shared GPU run at the same time, needs more memory than there is, as a
// sentence; empty if it fits. Collective; the same on every rank. forget: drops the cached results of this rank, and is
// called if that is needed.
std::string shortage_on_shared_gpu(const verify::CanonicalProblem& problem, Communicator& cp, const at::Device& device,
                                   int ranks_on_gpu, const std::function<void()>& forget);

}  // namespace cp_pool
