// Estimates how much device memory a case needs on one rank, for ranks that share a GPU.
#pragma once

#include <cstddef>

#include "cp_core/verify/canonical.h"

namespace cp_pool::verify {

// Returns the most bytes that the allocator of one of `ranks` ranks reserves for the case, without memory cached from
// earlier cases. An estimate from the sizes of the tensors.
std::size_t estimated_device_bytes(const CanonicalProblem& problem, int ranks);

}  // namespace cp_pool::verify
