#include "cases/comm_facts.h"

namespace cp_pool {

CommFacts a2a_facts() {
  return {
      .exchange = "every rank trades its tokens of all heads for all tokens of its heads, and back",
      .head_ranks = [](int cp_size) { return cp_size; },
      // All but a rank's own block of heads leaves it: forward q, k, v, out and lse; backward dout, a statistic, and
      // dq, dk, dv on their way back.
      .traffic =
          [](const RankBytes& rank, int cp_size) {
            const std::int64_t all = rank.q + rank.kv + rank.out + rank.statistic;
            const std::int64_t leaving = all * (cp_size - 1) / cp_size;
            return Traffic{.forward = leaving, .backward = leaving};
          },
  };
}

}  // namespace cp_pool
