// The facts of a communication type: how it splits heads, which numbers of ranks it works with, what it sends. The
// driver needs them, too, and does not link LibTorch; so a type is two files of one name. cases/comm_types/NAME.cpp has
// these facts, cp_core/context_parallel/NAME.cpp computes (cp_core/context_parallel/comm_steps.h). comm_types.def lists
// the types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"

namespace cp_pool {

// The bytes of a rank's shards: its rows of a case's tensors, with all heads.
struct RankBytes {
  std::int64_t q = 0;
  std::int64_t kv = 0;   // k and v
  std::int64_t out = 0;  // and dout
  // In fp32: the gradients of k and v where they are summed over ranks, and one statistic of each row (lse or delta).
  std::int64_t dkv_sums = 0;
  std::int64_t statistic = 0;
};

// What one rank sends to others in a step, in bytes.
struct Traffic {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};

struct Message {
  int from = 0;
  int to = 0;
  std::int64_t bytes = 0;
};

// Messages that ranks send at the same time.
struct Exchange {
  enum class Pass { forward, backward };
  Pass pass = Pass::forward;
  std::string what;  // for `cp-pool explain`: "k and v go to the next rank of the ring"
  int times = 1;     // how often, one after another
  std::vector<Message> messages;
};

// Members that have a default may be left out.
struct CommFacts {
  // What travels where: one sentence, for `cp-pool explain`.
  std::string_view exchange;
  // How many ranks split the heads among themselves. They are neighbours, the first group beginning with rank 0, and
  // the dual-chunk partition is over these groups.
  int (*head_ranks)(int cp_size);
  // Whether the type works with so many ranks. If it does not with all, `sizes` says with which: "an even size".
  bool (*takes_size)(int cp_size) = [](int /*cp_size*/) { return true; };
  std::string_view sizes = "";
  // Whether the gradients of k and v are summed over ranks. If so, they travel in fp32, or as a kernel rounded them
  // (docs/numerics.md).
  bool sums_dkv = false;
  // Returns what each of cp_size ranks sends. cp_size: at least 1, and a number that the type takes.
  Traffic (*traffic)(const RankBytes& rank, int cp_size);
  // Returns the messages of which that is the sum, in order. The same sizes; none for one rank.
  std::vector<Exchange> (*exchanges)(const RankBytes& rank, int cp_size);
};

// For CommFacts::exchanges: each rank sends to the one `distance` places further in the ring of all; every rank sends
// to every other.
std::vector<Message> messages_around(int ranks, int distance, std::int64_t bytes);
std::vector<Message> messages_to_all(int ranks, std::int64_t bytes);

const CommFacts& facts_of(CommType type);

// p2p_facts() and so on: each in the type's own file.
#define CP_POOL_COMM_TYPE(identifier, name) CommFacts identifier##_facts();
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE

// CommFacts::head_ranks of the case's type and number of ranks.
int head_ranks(const Case& c);
// Returns why the ranks cannot split the heads of a valid case among themselves; empty if they can.
std::string heads_do_not_divide(const Case& c);

// How many neighbours make an inner group (CpGroups, cp_core/comm/communicator.h) in a world of this size: the
// head_ranks of the types that split heads over some of the ranks. 0: no type needs inner groups. All that do must
// agree on it.
int inner_ranks(int cp_size);

}  // namespace cp_pool
