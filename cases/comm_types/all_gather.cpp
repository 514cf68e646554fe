#include "cases/comm_facts.h"

namespace cp_pool {

CommFacts all_gather_facts() {
  return {
      .exchange = "every rank gets all k and v; dk and dv are summed and scattered, in fp32",
      .head_ranks = [](RankCounts /*ranks*/) { return 1; },
      .sums_dkv = true,
      .joins_rows = true,
      // Every rank sends its keys and values to every other rank, once in the forward and again in the backward, so
      // that no rank keeps whole sequences. In the backward it also sends the sums of gradients to their owners.
      .exchanges = [](const RankBytes& rank, RankCounts ranks) -> std::vector<Exchange> {
        using enum Pass;
        const int cp_size = ranks.all;
        if (cp_size == 1) return {};
        return {{forward, "every rank sends its k and v to every other", 1, messages_to_all(cp_size, rank.kv)},
                {backward, "every rank sends its k and v to every other", 1, messages_to_all(cp_size, rank.kv)},
                {backward, "every rank sends its part of dk and dv to their owner, which sums them", 1,
                 messages_to_all(cp_size, rank.dkv_sums)}};
      },
  };
}

}  // namespace cp_pool
