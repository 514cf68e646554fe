#include <algorithm>
#include <cstddef>
#include <numeric>

#include "cases/comm_facts.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/mutation.h"

namespace cp_pool {

GroupRanks group_ranks(int rank, int size, const Division& division) {
  std::vector<int> cp;
  for (int other = 0; other < size; ++other) {
    if (group_of_rank(division, other) == group_of_rank(division, rank)) cp.push_back(other);
  }
  const int members = static_cast<int>(cp.size());
  if (CP_MUTATE(group_ranks_consecutive, false, true)) std::iota(cp.begin(), cp.end(), rank / members * members);
  GroupRanks out{.cp = cp, .inner = {}, .outer = {}};
  const int inner = inner_ranks({.all = members, .inner = division.inner});
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
