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
  static constexpr int kPair = 2;
  return {
      .exchange =
          "pairs of adjacent ranks exchange tokens for heads, as in a2a; "
          "even and odd ranks each form a ring, as in p2p",
      .head_ranks = [](int /*cp_size*/) { return kPair; },
      .takes_size = [](int cp_size) { return cp_size >= 2 * kPair && cp_size % kPair == 0; },
      .sizes = "an even size of at least 4 (pairs of ranks, in a ring)",
      .sums_dkv = true,
      .joins_rows = true,
      .exchanges =
          [](const RankBytes& rank, int cp_size) {
            const int pairs = cp_size / kPair;
            std::vector<Exchange> out = of_each_group(a2a_facts().exchanges(rank, kPair), pairs,
                                                      [](int pair, int place) { return kPair * pair + place; });
            std::vector<Exchange> rings = of_each_group(p2p_facts().exchanges(rank, pairs), kPair,
                                                        [](int ring, int place) { return kPair * place + ring; });
            for (Exchange& ring : rings) {
              for (Message& message : ring.messages) {
                // A pair's tokens, with the rank's share of the heads.
                const HeadShare share = head_share(rank.heads, rank.kv_heads, kPair, message.from % kPair);
                message.bytes = kPair * message.bytes / rank.kv_heads * static_cast<std::int64_t>(share.kv.size());
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
