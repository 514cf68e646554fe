// The groups of ranks that run a case at once (`group` and `group_ranks` of a case; docs/definitions.md). By default
// they are strided: with G groups, rank r of the world is rank r / G of group r % G, so the ranks of a group are not
// consecutive in the world. Each group solves a problem of its own, so that data which leaks from one group into
// another gives wrong results.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"

namespace cp_pool {

// The most ranks that a case may have, those of all its groups together.
inline constexpr int kMostCaseRanks = 64;

struct Division {
  // The group of each rank of the world, in order. Ranks of a group keep their order. Empty if all ranks are one group
  // and its inner groups are pairs.
  std::vector<int> groups;
  int inner = kPair;  // `inner` of the case

  auto operator<=>(const Division&) const = default;
  [[nodiscard]] bool empty() const { return groups.empty(); }
};

// The number of ranks of all groups together: how many processes the case needs.
int world_size(const Case& c);

Division division_of(const Case& c);
// Divides `ranks` ranks into strided groups.
Division strided(int ranks, int groups, int inner = kPair);

// The group of a rank of the world, and its rank in that group.
int group_of_rank(const Division& division, int world_rank);
int rank_in_group(const Division& division, int world_rank);

// The ranks of the world in each group, ascending.
std::vector<std::vector<int>> groups_of(const Division& division);

// Returns the problem of one group, 0 .. c.group - 1: the case with the seed c.seed + group (modulo 2^64), the size of
// the group, and the sequence lengths of the case itself, or those that group_lengths has for the group. For group 0
// this is the case.
Case case_of_group(const Case& c, int group);

// The suffix that names of a group's files have after the case's name: empty for group 0, else ".group1" and so on.
std::string group_suffix(int group);

}  // namespace cp_pool
