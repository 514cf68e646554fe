// Derives a rank's calls of the attention backend without the other ranks and without data, so that the backend can
// prepare for a case before it starts.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/attention/fast_backend.h"
#include "cp_core/context_parallel/context_parallel.h"

namespace cp_pool {

// Returns the preparations for the calls of the forward, and of the backward if training, in the order of the calls.
std::vector<Preparation> preparations(const AttentionProblem& problem, at::ScalarType dtype, int ranks, int rank,
                                      bool training, const FastBackend& backend);

}  // namespace cp_pool
