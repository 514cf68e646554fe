#include "cp_core/context_parallel/ring.h"

#include "cp_core/mutation.h"

namespace cp_pool {

int Ring::owner(int step) const {
  const int later = CP_MUTATE(ring_order, step, step + 1);
  const int distance = CP_MUTATE(odd_ring_order, later, size % 2 == 1 ? step + 1 : step) % size;
  return (rank + CP_MUTATE(ring_direction, size - distance, distance)) % size;
}

TilePlan ring_plan(const AttentionProblem& problem, const Ring& ring, int step) {
  return make_plan(problem, local_runs(problem.lengths.padded_q, ring.size, ring.rank),
                   local_runs(problem.lengths.padded_kv, ring.size, ring.owner(step)));
}

std::vector<TilePlan> ring_plans(const AttentionProblem& problem, int ranks, int rank) {
  const Ring ring(ranks, rank);
  std::vector<TilePlan> plans;
  plans.reserve(static_cast<std::size_t>(ring.size));
  for (int step = 0; step < ring.size; ++step) plans.push_back(ring_plan(problem, ring, step));
  return plans;
}

}  // namespace cp_pool
