// What a communication type computes. Each type defines it in cp_core/context_parallel/NAME.cpp; what it says of itself
// without LibTorch is in cases/comm_types/NAME.cpp (cases/comm_facts.h). cases/comm_types.def lists the types.
#pragma once

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// A rank of a problem before there are groups and data.
struct FutureRank {
  const AttentionProblem& problem;
  at::ScalarType dtype;
  int ranks;
  int rank;

  // Over how many ranks each side's tokens, and the heads, are split while tiles are computed.
  struct Split {
    int q = 1;
    int kv = 1;
    int heads = 1;
  };
  // On the meta device.
  [[nodiscard]] AttentionOperands operands_like(const Split& split) const;
};

struct CommSteps {
  // Collective over the groups of the context.
  PackedForward (*forward)(const Context& context, const PackedInputs& inputs);
  // saved: what the forward of this rank gave.
  PackedGradients (*backward)(const Context& context, const PackedInputs& inputs,
                              const AttentionBackwardOperands& backward, const SavedForward& saved);
  // Tells the backend to get ready for what forward or backward of this rank will tell it to get ready for, in the same
  // order.
  void (*get_ready)(const FutureRank& rank, Pass pass, FastBackend& backend);
};

// What so many ranks compute. One has nothing to exchange, whatever the type: it is a ring of one. Throws
// std::invalid_argument for a number of ranks that the type does not take.
const CommSteps& steps_of(CommType type, int ranks);

// p2p_steps() and so on: each in the type's own file.
#define CP_POOL_COMM_TYPE(identifier, name) CommSteps identifier##_steps();
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE

}  // namespace cp_pool
