#include <algorithm>

#include "cases/comm_facts.h"

namespace cp_pool {

CommFacts p2p_facts() {
  return {
      .exchange =
          "k and v travel around a ring of all ranks while each computes; dk and dv travel with them, sums in fp32",
      .head_ranks = [](int /*cp_size*/) { return 1; },
      .sums_dkv = true,
      // Keys and values go to every other rank, and as many sums of gradients come back. The backward begins with those
      // that the forward held last, and does not send its own.
      .traffic =
          [](const RankBytes& rank, int cp_size) {
            const std::int64_t others = cp_size - 1;
            return Traffic{.forward = others * rank.kv,
                           .backward = std::max<std::int64_t>(others - 1, 0) * rank.kv + others * rank.dkv_sums};
          },
  };
}

}  // namespace cp_pool
