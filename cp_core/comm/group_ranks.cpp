#include <algorithm>

#include "cases/comm_facts.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

std::vector<int> ranks_from(int first, int step, int end) {
  std::vector<int> ranks;
  for (int rank = first; rank < end; rank += step) ranks.push_back(rank);
  return ranks;
}

}  // namespace

GroupRanks group_ranks(int rank, int size, int groups) {
  const int members = size / groups;
  const std::vector<int> cp = CP_MUTATE(group_ranks_consecutive, ranks_from(rank % groups, groups, size),
                                        ranks_from(rank / members * members, 1, (rank / members + 1) * members));
  GroupRanks out{.cp = cp, .inner = {}, .outer = {}};
  const int inner = inner_ranks(members);
  if (inner == 0) return out;
  const int place = static_cast<int>(std::ranges::find(cp, rank) - cp.begin());
  for (int i = 0; i < members; ++i) {
    const int world_rank = cp[static_cast<std::size_t>(i)];
    if (i / inner == place / inner) out.inner.push_back(world_rank);
    if (i % inner == place % inner) out.outer.push_back(world_rank);
  }
  return out;
}

}  // namespace cp_pool
