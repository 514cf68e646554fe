// The functions of a communication type. Each type defines them in cp_core/context_parallel/NAME.cpp, and its facts
// that need no LibTorch in cases/comm_types/NAME.cpp (cases/comm_facts.h). cases/comm_types.def lists the types.
#pragma once

#include <vector>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

// A rank of a problem for which there are neither groups nor data yet.
struct FutureRank {
  const AttentionProblem& problem;
  at::ScalarType dtype;
  int ranks;
  int rank;

  // The numbers of ranks over which query tokens, key tokens and heads are split while tiles are computed.
  struct Split {
    int q = 1;
    int kv = 1;
    int heads = 1;                 // neighbours
    std::int64_t head_groups = 1;  // in which a rank's heads are computed
  };
  // Returns operands on the meta device, with the sizes that the rank has with this split.
  [[nodiscard]] AttentionOperands operands_like(const Split& split) const;
};

struct CommSteps {
  // Collective over the groups of the context.
  PackedForward (*forward)(const Context& context, const PackedInputs& inputs);
  // saved: PackedForward::saved of this rank's forward.
  PackedGradients (*backward)(const Context& context, const PackedInputs& inputs,
                              const AttentionBackwardOperands& backward, const SavedForward& saved);
  // Makes the same calls of backend.get_ready(), in the same order, as forward or backward of this rank will make.
  void (*get_ready)(const FutureRank& rank, Pass pass, FastBackend& backend);
};

// Returns the functions of the problem's type for `ranks` ranks. A single rank has nothing to exchange and is a ring of
// one, whatever the type. Throws std::invalid_argument for a number of ranks that the type does not take.
const CommSteps& steps_of(const AttentionProblem& problem, int ranks);

// Returns the preparations of a rank, without the other ranks and without data, for the calls of the backend in the
// forward, and in the backward if the case trains, in the order of the calls.
std::vector<Preparation> preparations(const AttentionProblem& problem, at::ScalarType dtype, int ranks, int rank,
                                      const FastBackend& backend);

// Declares p2p_steps() and so on. Each is defined in the type's own file.
#define CP_POOL_COMM_TYPE(identifier, name) CommSteps identifier##_steps();
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE

}  // namespace cp_pool
