// One step of our own attention on one rank, from shards to results.
#pragma once

#include "cp_core/comm/communicator.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/verify/rank_view.h"
#include "cp_core/verify/reference.h"

namespace cp_pool {

AttentionInputs attention_inputs(const verify::Shards& shards);

// In the case's layout; lse fp32 [heads, local tokens], max_logit and dsink fp32 [heads].
verify::Results results_of(const AttentionForward& forward, const AttentionGradients& gradients);

// Collective over the groups: forward, and backward if there is a dout. Throws CommError, or whatever a library throws.
verify::Results take_step(const AttentionProblem& problem, const CpGroups& groups, const verify::Shards& shards);

}  // namespace cp_pool
