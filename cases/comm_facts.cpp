#include "cases/comm_facts.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace cp_pool {

namespace {

int inner_ranks_of(CommType type, RankCounts ranks) {
  const CommFacts& facts = facts_of(type);
  if (!facts.takes_size(ranks)) return 0;
  const int inner = facts.head_ranks(ranks);
  return inner > 1 && inner < ranks.all ? inner : 0;
}

}  // namespace

const CommFacts& facts_of(CommType type) {
  static const std::array all{
#define CP_POOL_COMM_TYPE(identifier, name) identifier##_facts(),
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE
  };
  return all.at(static_cast<std::size_t>(type));
}

std::vector<Message> ring_messages(int ranks, int distance, std::int64_t bytes) {
  std::vector<Message> messages;
  messages.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    messages.push_back({.from = rank, .to = (rank + distance + ranks) % ranks, .bytes = bytes});
  }
  return messages;
}

std::vector<Message> messages_to_all(int ranks, std::int64_t bytes) {
  std::vector<Message> messages;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (to != from) messages.push_back({.from = from, .to = to, .bytes = bytes});
    }
  }
  return messages;
}

int head_ranks(const Case& c) {
  return facts_of(c.comm).head_ranks(rank_counts(c));
}

// Kv heads stay whole if every rank gets one. Otherwise query heads are split, and a rank gets as few kv heads as equal
// groups of its query heads can read.
HeadShare head_share(std::int64_t heads, std::int64_t kv_heads, int ranks, int rank) {
  const std::int64_t group = heads / kv_heads;
  const std::int64_t unit = kv_heads < ranks ? 1 : group;
  const auto begin_of = [&](std::int64_t r) { return heads / unit * r / ranks * unit; };
  HeadShare share{.first = begin_of(rank), .count = begin_of(rank + 1) - begin_of(rank), .kv = {}};
  const auto fits = [&](std::int64_t size) {
    if (share.count % size != 0) return false;
    for (std::int64_t head = share.first; head < share.first + share.count; head += size) {
      if (head / group != (head + size - 1) / group) return false;
    }
    return true;
  };
  std::int64_t size = std::min(group, share.count);
  while (size > 1 && !fits(size)) --size;
  for (std::int64_t head = share.first; head < share.first + share.count; head += size)
    share.kv.push_back(head / group);
  return share;
}

bool has_uneven_heads(const Case& c) {
  return c.heads % head_ranks(c) != 0 || c.kv_heads % head_ranks(c) != 0;
}

int inner_ranks(RankCounts ranks) {
  for (const CommType type : kValues<CommType>) {
    if (const int inner = inner_ranks_of(type, ranks); inner > 0) return inner;
  }
  return 0;
}

int inner_ranks(const Case& c) {
  return inner_ranks_of(c.comm, rank_counts(c));
}

}  // namespace cp_pool
