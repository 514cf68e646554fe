// The facts of a communication type: how it splits heads, which numbers of ranks it works with, and the messages it
// sends. The driver needs them too, and it does not link LibTorch; therefore a type consists of two files of one name.
// cases/comm_types/NAME.cpp has these facts, and cp_core/context_parallel/NAME.cpp computes
// (cp_core/context_parallel/comm_steps.h). comm_types.def lists the types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/pass.h"

namespace cp_pool {

// The bytes of a rank's shards: its rows of a case's tensors, with all heads.
struct RankBytes {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q = 0;
  std::int64_t kv = 0;   // k and v together
  std::int64_t out = 0;  // dout has the same size
  // Both in fp32: the gradients of k and v where they are summed over ranks, and one statistic of each row (lse or
  // delta).
  std::int64_t dkv_sums = 0;
  std::int64_t statistic = 0;
};

struct Message {
  int from = 0;
  int to = 0;
  std::int64_t bytes = 0;
};

// Messages that ranks send at the same time.
struct Exchange {
  Pass pass = Pass::forward;
  std::string what;  // text for `cp-pool explain`: "k and v go to the next rank of the ring"
  int times = 1;     // how often the messages are sent, one round after another
  std::vector<Message> messages;
};

// How many ranks a case has, and how many of them form an inner group.
struct RankCounts {
  int all = 1;
  int inner = kPair;
};

// Members that have a default may be left out.
struct CommFacts {
  // One sentence that says which tensors are sent to which ranks, for `cp-pool explain`.
  std::string_view exchange;
  // How many ranks split the heads among themselves. These groups of ranks are consecutive, and the first one begins
  // with rank 0. The dual-chunk partition is over the groups.
  int (*head_ranks)(RankCounts ranks);
  // Whether the type works with so many ranks. If it refuses some, `sizes` says which it needs: "an even size".
  bool (*takes_size)(RankCounts ranks) = [](RankCounts /*ranks*/) { return true; };
  std::string_view sizes = "";
  // Whether the gradients of k and v are summed over ranks. If so, they are sent in fp32, or as a kernel rounded them
  // (docs/numerics.md).
  bool sums_dkv = false;
  // Whether a rank computes with rows of several ranks in one tensor, as after a gather of keys or an exchange of
  // tokens for heads. A diagnosis looks for mistakes in the order of these rows.
  bool joins_rows = false;
  // Returns the messages that the ranks send, in order; none for one rank. ranks: accepted by takes_size.
  std::vector<Exchange> (*exchanges)(const RankBytes& rank, RankCounts ranks);
};

// Messages for CommFacts::exchanges. ring_messages: each rank sends to the rank `distance` places further in the ring
// of all ranks. messages_to_all: every rank sends to every other one.
std::vector<Message> ring_messages(int ranks, int distance, std::int64_t bytes);
std::vector<Message> messages_to_all(int ranks, std::int64_t bytes);

const CommFacts& facts_of(CommType type);

// p2p_facts() and so on: each in the type's own file.
#define CP_POOL_COMM_TYPE(identifier, name) CommFacts identifier##_facts();
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE

// Whether each rank of our own attention computes all queries with its own keys, so that ranks exchange results.
constexpr bool merges_parts(const Case& c) {
  return c.all_queries && c.replicated == 0 && !c.training && c.comm == CommType::all_gather;
}

constexpr RankCounts rank_counts(const Case& c) {
  return {.all = c.cp_size, .inner = c.inner};
}

// CommFacts::head_ranks for the case's type and number of ranks.
int head_ranks(const Case& c);

// The heads that one of several ranks computes: `count` query heads from `first` on, and these kv heads, each of which
// count / kv.size() successive query heads read. A kv head may be on several ranks, and several times on one. Where
// there are fewer query heads than ranks, some ranks have none.
struct HeadShare {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> kv;
};
HeadShare head_share(std::int64_t heads, std::int64_t kv_heads, int ranks, int rank);
// Whether some rank's share of the case's heads differs from another's, or has kv heads that another rank has too.
bool has_uneven_heads(const Case& c);

// Returns how many consecutive ranks form an inner group (CpGroups, cp_core/comm/communicator.h): the head_ranks of the
// types that split heads over some, not all, of the ranks. All such types must agree on it. 0 if no type needs inner
// groups.
int inner_ranks(RankCounts ranks);
// The same for the type of the case alone.
int inner_ranks(const Case& c);

}  // namespace cp_pool
