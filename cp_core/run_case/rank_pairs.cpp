#include "cp_core/run_case/rank_pairs.h"

#include <cstddef>
#include <variant>

#include "cases/comm_facts.h"
#include "cases/mask.h"

namespace cp_pool {

namespace {

// How ranks form groups that split the heads among themselves.
struct HeadGroups {
  int size = 1;       // ranks of a group
  int count = 1;      // groups
  bool inner = true;  // a group has neighbouring ranks; else ranks that are `count` apart

  [[nodiscard]] int of_rank(int rank) const { return inner ? rank / size : rank % count; }
  [[nodiscard]] int place_of(int rank) const { return inner ? rank % size : rank / count; }
};

HeadGroups head_groups(const Case& c, const verify::Sharding& sharding, int ranks) {
  const auto* const convention = std::get_if<verify::Convention>(&sharding.rows);
  if (convention != nullptr && convention->kind == verify::ConventionKind::dual_chunk_ulysses) {
    return {.size = ranks / convention->ring, .count = convention->ring, .inner = convention->ulysses_inner};
  }
  const int size = facts_of(c.comm).head_ranks(ranks);
  return {.size = size, .count = ranks / size};
}

}  // namespace

std::vector<std::int64_t> pairs_by_rank(const Case& c, const SequenceLengths& lengths, const verify::Sharding& sharding,
                                        int ranks) {
  const HeadGroups groups = head_groups(c, sharding, ranks);
  const verify::RowsByRank rows = verify::ownership_of(sharding, c.layout, lengths, ranks).q;
  const Mask mask = make_mask(c);
  std::vector<std::int64_t> of_groups(static_cast<std::size_t>(groups.count), 0);
  std::vector<bool> begun(static_cast<std::size_t>(groups.count), false);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto group = static_cast<std::size_t>(groups.of_rank(rank));
    for (const verify::LocalRow& row : rows[static_cast<std::size_t>(rank)]) {
      // The ranks of a group all hold the replicated rows, and together compute them once.
      if (row.canonical < 0 || (begun[group] && row.position < lengths.replicated)) continue;
      const auto b = static_cast<std::size_t>(row.sequence);
      of_groups[group] += visible_keys(mask, row.position, lengths.valid_q[b], lengths.valid_kv[b]).size();
    }
    begun[group] = true;
  }
  std::vector<std::int64_t> pairs;
  pairs.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    pairs.push_back(of_groups[static_cast<std::size_t>(groups.of_rank(rank))] *
                    head_share(c.heads, c.kv_heads, groups.size, groups.place_of(rank)).count);
  }
  return pairs;
}

}  // namespace cp_pool
