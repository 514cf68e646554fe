// One step of our own attention on one rank, from shards to results.
#pragma once

#include "cp_core/comm/communicator.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/verify/rank_view.h"
#include "cp_core/verify/reference.h"

namespace cp_pool {

AttentionInputs attention_inputs(const verify::Shards& shards);

// Results in the case's layout; lse is fp32 [heads, local tokens], max_logit and dsink are fp32 [heads].
verify::Results results_of(const AttentionForward& forward, const AttentionGradients& gradients);

// Collective over the groups. Runs the forward, and the backward if the shards have a dout. Throws CommError, and
// whatever a library throws.
verify::Results take_step(const AttentionProblem& problem, const CpGroups& groups, const verify::Shards& shards);

}  // namespace cp_pool
