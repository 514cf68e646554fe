#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "cases/comm_facts.h"

namespace cp_pool {

namespace {

// Returns the exchanges of one group, made by all `groups` groups at the same time. place_of(group, rank) gives the
// rank of the world for a rank of a group.
std::vector<Exchange> of_each_group(std::vector<Exchange> exchanges, int groups,
                                    const std::function<int(int group, int rank)>& place_of) {
  for (Exchange& exchange : exchanges) {
    const std::vector<Message> of_one = std::exchange(exchange.messages, {});
    for (int group = 0; group < groups; ++group) {
      for (const Message& message : of_one) {
        exchange.messages.push_back(
            {.from = place_of(group, message.from), .to = place_of(group, message.to), .bytes = message.bytes});
      }
    }
  }
  return exchanges;
}

}  // namespace

CommFacts a2a_p2p_facts() {
  return {
      .exchange =
          "inner groups of adjacent ranks exchange tokens for heads, as in a2a; "
          "the ranks at the same place of all inner groups form a ring, as in p2p",
      .head_ranks = [](RankCounts ranks) { return ranks.inner; },
      // With one inner group it would be a2a.
      .takes_size = [](RankCounts ranks) { return ranks.all > ranks.inner && ranks.all % ranks.inner == 0; },
      .sizes = "two or more groups of `inner` ranks, in a ring",
      .sums_dkv = true,
      .joins_rows = true,
      .exchanges =
          [](const RankBytes& rank, RankCounts ranks) {
            const int inner = ranks.inner;
            const int groups = ranks.all / inner;
            std::vector<Exchange> out = of_each_group(a2a_facts().exchanges(rank, {inner}), groups,
                                                      [=](int group, int place) { return inner * group + place; });
            std::vector<Exchange> rings = of_each_group(p2p_facts().exchanges(rank, {groups}), inner,
                                                        [=](int ring, int place) { return inner * place + ring; });
            for (Exchange& ring : rings) {
              for (Message& message : ring.messages) {
                // An inner group's tokens, with the rank's share of the heads.
                const HeadShare share = head_share(rank.heads, rank.kv_heads, inner, message.from % inner);
                message.bytes = inner * message.bytes / rank.kv_heads * static_cast<std::int64_t>(share.kv.size());
              }
            }
            // The steps of the ring come between the two trades of the same pass.
            for (const Pass pass : {Pass::forward, Pass::backward}) {
              const auto last =
                  std::find_if(out.rbegin(), out.rend(), [pass](const Exchange& trade) { return trade.pass == pass; });
              std::vector<Exchange> turns;
              std::ranges::copy_if(rings, std::back_inserter(turns),
                                   [pass](const Exchange& ring) { return ring.pass == pass; });
              out.insert(std::prev(last.base()), turns.begin(), turns.end());
            }
            return out;
          },
  };
}

}  // namespace cp_pool
