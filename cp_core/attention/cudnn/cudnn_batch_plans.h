// Finds the plans of cuDNN that compute groups of tiles.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cp_core/attention/backend.h"
#include "cp_core/attention/cudnn/cudnn_batch.h"
#include "cp_core/attention/cudnn/cudnn_call.h"

namespace cp_pool {

// Divides a group without a bias into batches and finds their plans, before anything is launched. A ragged batch that
// cuDNN refuses is divided into single tiles. Throws BackendUnsupported.
std::vector<PlannedBatch> plan_batches(const TileGroup& group, const AttentionOperands& operands, Pass pass);

// Finds the plan of a tile with a bias. Throws BackendUnsupported.
PlannedBatch plan_bias_tile(const Tile& tile, const AttentionOperands& operands, Pass pass, bool dbias);

// Does the work that plan_preparations lists on several threads, and waits for it. A repeated call with the same
// arguments costs next to nothing.
void build_plans_ahead(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass);

// Returns a piece of work for each plan of cuDNN that calls for these plans of tiles need and that nobody has asked for
// yet. Only sizes and dtypes of `like` are read, so its tensors may be on the meta device. A refusal is remembered and
// thrown again by the call that needs the plan.
std::vector<Preparation> plan_preparations(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass,
                                           bool deterministic);

}  // namespace cp_pool
