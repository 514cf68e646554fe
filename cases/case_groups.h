// The strided groups of ranks that run a case at once (`group` of a case; docs/definitions.md). With G groups rank r of
// the world is rank r / G of group r % G: the ranks of a group are not consecutive in the world. Each group solves a
// problem of its own, so that data which crosses from one to another shows.
#pragma once

#include <string>

#include "cases/case.h"

namespace cp_pool {

// The ranks of all groups: how many processes the case needs.
constexpr int world_size(const Case& c) {
  return c.cp_size * c.group;
}

// The group of a rank of the world.
constexpr int group_of_rank(const Case& c, int world_rank) {
  return world_rank % c.group;
}

// The problem of one group, 0 .. c.group - 1: the case with the seed c.seed + group (modulo 2^64) and the lengths of
// the case itself. Of a case that has one group it is the case.
Case case_of_group(const Case& c, int group);

// What the names of a group's files have behind that of the case: empty for group 0, else ".group1" and so on.
std::string group_suffix(int group);

}  // namespace cp_pool
