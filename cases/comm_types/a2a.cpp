#include "cases/comm_facts.h"

namespace cp_pool {

CommFacts a2a_facts() {
  return {
      .exchange = "every rank exchanges its tokens with all heads for all tokens with its share of the heads, and back",
      .head_ranks = [](int cp_size) { return cp_size; },
      .joins_rows = true,
      // A rank sends everything but its own block of heads. In the forward these are q, k, v, out and lse; in the
      // backward dout, a statistic, and dq, dk, dv on their way back.
      .traffic =
          [](const RankBytes& rank, int cp_size) {
            const std::int64_t all = rank.q + rank.kv + rank.out + rank.statistic;
            const std::int64_t leaving = all * (cp_size - 1) / cp_size;
            return Traffic{.forward = leaving, .backward = leaving};
          },
      .exchanges = [](const RankBytes& rank, int cp_size) -> std::vector<Exchange> {
        using enum Pass;
        if (cp_size == 1) return {};
        const auto trade = [&](std::int64_t bytes) { return messages_to_all(cp_size, bytes / cp_size); };
        return {{forward, "q, k and v: a rank's tokens of the receiver's heads", 1, trade(rank.q + rank.kv)},
                {forward, "out and lse: the receiver's tokens of a rank's heads", 1, trade(rank.out + rank.statistic)},
                {backward, "dout and a statistic: a rank's tokens of the receiver's heads", 1,
                 trade(rank.out + rank.statistic)},
                {backward, "dq, dk and dv: the receiver's tokens of a rank's heads", 1, trade(rank.q + rank.kv)}};
      },
  };
}

}  // namespace cp_pool
