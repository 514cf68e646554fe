#include "cases/comm_facts.h"

namespace cp_pool {

CommFacts p2p_facts() {
  return {
      .exchange =
          "k and v travel around a ring of all ranks while each computes; dk and dv travel with them, sums in fp32",
      .head_ranks = [](RankCounts /*ranks*/) { return 1; },
      .sums_dkv = true,
      // In the forward a rank passes keys and values on to the next rank, once per other rank. The backward begins with
      // those that the rank held last and does not send its own, so it needs one message less. The sums of gradients
      // take as many messages as the forward.
      .exchanges =
          [](const RankBytes& rank, RankCounts ranks) {
            const int cp_size = ranks.all;
            using enum Pass;
            std::vector<Exchange> exchanges;
            const auto add = [&](Pass pass, const char* what, int times, int distance, std::int64_t bytes) {
              if (times > 0) exchanges.push_back({pass, what, times, ring_messages(cp_size, distance, bytes)});
            };
            add(forward,
                "k and v go to the next rank of the ring: after s times a rank holds those of the s-th before it",
                cp_size - 1, 1, rank.kv);
            add(backward, "k and v go back to the previous rank of the ring", cp_size - 2, -1, rank.kv);
            add(backward, "the sums of dk and dv follow k and v to the previous rank, one step later", cp_size - 1, -1,
                rank.dkv_sums);
            return exchanges;
          },
  };
}

}  // namespace cp_pool
