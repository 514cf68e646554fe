// The strided groups of ranks that run a case at once (`group` of a case; docs/definitions.md). With G groups, rank r
// of the world is rank r / G of group r % G, so the ranks of a group are not consecutive in the world. Each group
// solves a problem of its own, so that data which leaks from one group into another gives wrong results.
#pragma once

#include <string>

#include "cases/case.h"

namespace cp_pool {

// The most ranks that a case may have, those of all its groups together.
inline constexpr int kMostCaseRanks = 64;

// The number of ranks of all groups together: how many processes the case needs.
constexpr int world_size(const Case& c) {
  return c.cp_size * c.group;
}

// The group of a rank of the world.
constexpr int group_of_rank(const Case& c, int world_rank) {
  return world_rank % c.group;
}

// Returns the problem of one group, 0 .. c.group - 1: the case with the seed c.seed + group (modulo 2^64) and with the
// sequence lengths of the case itself. For a case with one group this is the case.
Case case_of_group(const Case& c, int group);

// The suffix that names of a group's files have after the case's name: empty for group 0, else ".group1" and so on.
std::string group_suffix(int group);

}  // namespace cp_pool
