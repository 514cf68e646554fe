// Finds the plans of cuDNN that compute groups of tiles.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cp_core/attention/cudnn/cudnn_batch.h"
#include "cp_core/attention/cudnn/cudnn_call.h"
#include "cp_core/attention/fast_backend.h"

namespace cp_pool {

// The graphs that can compute a batch in one of the two passes, the best first.
using GraphsOf = std::vector<CudnnGraph> (*)(const CudnnBatch&, bool dbias);
std::vector<CudnnGraph> forward_graphs(const CudnnBatch& batch, bool dbias);
std::vector<CudnnGraph> backward_graphs(const CudnnBatch& batch, bool dbias);

// Batches of a group without a bias, each with its plan: all plans are there before anything is launched. A ragged
// batch that cuDNN refuses is computed tile by tile. Throws BackendUnsupported.
std::vector<PlannedBatch> plan_batches(const TileGroup& group, const AttentionOperands& operands, GraphsOf graphs);

// A tile with a bias. Throws BackendUnsupported.
PlannedBatch plan_bias_tile(const Tile& tile, const AttentionOperands& operands, GraphsOf graphs, bool dbias);

// Builds, all at once on several threads, what plan_preparations lists. What has been asked for before costs next to
// nothing.
void build_plans_ahead(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass);

// One piece for each plan that the calls for these plans of tiles need and nobody has asked for yet. Of `like` only
// sizes and dtypes are read: its tensors may be of the meta device. A refusal is remembered, for the call itself to
// meet.
std::vector<Preparation> plan_preparations(std::span<const TilePlan> plans, const AttentionOperands& like, Pass pass,
                                           bool deterministic);

}  // namespace cp_pool
