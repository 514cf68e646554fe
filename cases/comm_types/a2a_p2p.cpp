#include "cases/comm_facts.h"

namespace cp_pool {

CommFacts a2a_p2p_facts() {
  static constexpr int kPair = 2;
  return {
      .exchange = "pairs of adjacent ranks trade heads for tokens; a ring of every second rank does the rest",
      .head_ranks = [](int /*cp_size*/) { return kPair; },
      .takes_size = [](int cp_size) { return cp_size >= 2 * kPair && cp_size % kPair == 0; },
      .sizes = "an even size of at least 4 (pairs of ranks, in a ring)",
      .sums_dkv = true,
      // A pair's tokens of half the heads are as many bytes as a rank's tokens of all heads.
      .traffic =
          [](const RankBytes& rank, int cp_size) {
            const Traffic in_pair = a2a_facts().traffic(rank, kPair);
            const Traffic in_ring = p2p_facts().traffic(rank, cp_size / kPair);
            return Traffic{.forward = in_pair.forward + in_ring.forward,
                           .backward = in_pair.backward + in_ring.backward};
          },
  };
}

}  // namespace cp_pool
