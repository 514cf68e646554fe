// The ring of ranks around which K and V are passed.
#pragma once

#include <vector>

#include "cp_core/context_parallel/core.h"

namespace cp_pool {

struct Ring {
  Ring(int ranks, int own_rank) : size(ranks), rank(own_rank) {}
  // group: null for a ring of one.
  explicit Ring(const Communicator* group) : Ring(group ? group->size() : 1, group ? group->rank() : 0) {}

  [[nodiscard]] int next() const { return (rank + 1) % size; }
  [[nodiscard]] int previous() const { return (rank + size - 1) % size; }
  // Returns the rank whose K and V this rank holds at a step of the forward. The backward takes the same steps from
  // last to first.
  [[nodiscard]] int owner(int step) const;

  int size;
  int rank;
};

// The tiles of one step of a rank.
TilePlan ring_plan(const AttentionProblem& problem, const Ring& ring, int step);
// The tiles of each step of a rank, for the K and V that it then holds.
std::vector<TilePlan> ring_plans(const AttentionProblem& problem, int ranks, int rank);

}  // namespace cp_pool
