#include "cases/comm_facts.h"

#include <array>
#include <cstddef>

#include <fmt/format.h>

#include "cases/case_names.h"

namespace cp_pool {

namespace {

int inner_ranks_of(CommType type, int cp_size) {
  const CommFacts& facts = facts_of(type);
  if (!facts.takes_size(cp_size)) return 0;
  const int ranks = facts.head_ranks(cp_size);
  return ranks > 1 && ranks < cp_size ? ranks : 0;
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
  return facts_of(c.comm).head_ranks(c.cp_size);
}

std::string heads_do_not_divide(const Case& c) {
  const int ranks = head_ranks(c);
  if (c.heads % ranks == 0 && c.kv_heads % ranks == 0) return {};
  return fmt::format("{} splits heads over {} ranks: {} heads and {} kv_heads do not both divide by {}",
                     to_string(c.comm), ranks, c.heads, c.kv_heads, ranks);
}

int inner_ranks(int cp_size) {
  for (const CommType type : kValues<CommType>) {
    if (const int ranks = inner_ranks_of(type, cp_size); ranks > 0) return ranks;
  }
  return 0;
}

int inner_ranks(const Case& c) {
  return inner_ranks_of(c.comm, c.cp_size);
}

}  // namespace cp_pool
