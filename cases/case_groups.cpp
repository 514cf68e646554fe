#include "cases/case_groups.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "cases/lengths.h"

namespace cp_pool {

int world_size(const Case& c) {
  if (!c.group_ranks) return c.cp_size * c.group;
  std::size_t ranks = 0;
  for (const std::vector<int>& group : *c.group_ranks) ranks += group.size();
  return static_cast<int>(ranks);
}

Division strided(int ranks, int groups, int inner) {
  Division division{.groups = {}, .inner = inner};
  for (int rank = 0; rank < ranks; ++rank) division.groups.push_back(rank % groups);
  return division;
}

Division division_of(const Case& c) {
  if (c.group == 1 && c.inner == kPair) return {};
  Division division = strided(world_size(c), c.group, c.inner);
  for (int group = 0; c.group_ranks && group < c.group; ++group) {
    for (const int rank : c.group_ranks->at(static_cast<std::size_t>(group))) {
      division.groups.at(static_cast<std::size_t>(rank)) = group;
    }
  }
  return division;
}

int group_of_rank(const Division& division, int world_rank) {
  return division.empty() ? 0 : division.groups.at(static_cast<std::size_t>(world_rank));
}

int rank_in_group(const Division& division, int world_rank) {
  if (division.empty()) return world_rank;
  const int group = group_of_rank(division, world_rank);
  return static_cast<int>(std::count(division.groups.begin(), division.groups.begin() + world_rank, group));
}

std::vector<std::vector<int>> groups_of(const Division& division) {
  std::vector<std::vector<int>> groups;
  for (std::size_t rank = 0; rank < division.groups.size(); ++rank) {
    const auto group = static_cast<std::size_t>(division.groups[rank]);
    if (groups.size() <= group) groups.resize(group + 1);
    groups[group].push_back(static_cast<int>(rank));
  }
  return groups;
}

Case case_of_group(const Case& c, int group) {
  Case own = c;
  if (c.group == 1) return own;
  own.seed += static_cast<std::uint64_t>(group);
  const auto index = static_cast<std::size_t>(group);
  if (c.group_ranks) own.cp_size = static_cast<int>(c.group_ranks->at(index).size());
  if (c.layout != Layout::thd) return own;
  if (c.group_lengths) {
    own.seqlens = c.group_lengths->at(index);
    own.batch = static_cast<std::int64_t>(own.seqlens->size());
    return own;
  }
  // The lengths are made explicit, because they would otherwise be drawn from the group's own seed.
  const SequenceLengths lengths = resolve_lengths(c);
  if (!keys_like_queries(c)) own.seqlens_kv = lengths.valid_kv;
  own.seqlens = lengths.valid_q;
  return own;
}

std::string group_suffix(int group) {
  return group == 0 ? std::string() : fmt::format(".group{}", group);
}

}  // namespace cp_pool
