#include <utility>

#include "cases/comm_facts.h"

namespace cp_pool {

CommFacts a2a_facts() {
  return {
      .exchange = "every rank exchanges its tokens with all heads for all tokens with its share of the heads, and back",
      .head_ranks = [](RankCounts ranks) { return ranks.all; },
      .joins_rows = true,
      // A rank sends everything but its own share of the heads. In the forward these are q, k, v, out and lse; in the
      // backward dout, a statistic, and dq, dk, dv on their way back: dk and dv in fp32 where several ranks have a kv
      // head.
      .exchanges = [](const RankBytes& rank, RankCounts ranks) -> std::vector<Exchange> {
        using enum Pass;
        const int cp_size = ranks.all;
        if (cp_size == 1) return {};
        std::vector<HeadShare> shares;
        std::size_t kv_heads = 0;
        for (int r = 0; r < cp_size; ++r) {
          shares.push_back(head_share(rank.heads, rank.kv_heads, cp_size, r));
          kv_heads += shares.back().kv.size();
        }
        // owner: the rank of a message whose heads it carries.
        const auto trade = [&](std::int64_t q, std::int64_t kv, int Message::* owner) {
          std::vector<Message> messages = messages_to_all(cp_size, 0);
          for (Message& message : messages) {
            const HeadShare& share = shares[static_cast<std::size_t>(message.*owner)];
            message.bytes =
                q / rank.heads * share.count + kv / rank.kv_heads * static_cast<std::int64_t>(share.kv.size());
          }
          return messages;
        };
        const std::int64_t dkv = std::cmp_greater(kv_heads, rank.kv_heads) ? rank.dkv_sums : rank.kv;
        const std::int64_t results = rank.out + rank.statistic;
        return {
            {forward, "q, k and v: a rank's tokens of the receiver's heads", 1, trade(rank.q, rank.kv, &Message::to)},
            {forward, "out and lse: the receiver's tokens of a rank's heads", 1, trade(results, 0, &Message::from)},
            {backward, "dout and a statistic: a rank's tokens of the receiver's heads", 1,
             trade(results, 0, &Message::to)},
            {backward, "dq, dk and dv: the receiver's tokens of a rank's heads", 1,
             trade(rank.q, dkv, &Message::from)}};
      },
  };
}

}  // namespace cp_pool
