#include "driver/output_bits.h"

#include <algorithm>
#include <utility>

namespace cp_pool {

bool promises_bits(const CaseFinished& event) {
  const bool of_library = event.c.backend != Backend::math && event.c.training;
  return event.c.deterministic || !of_library || !event.pool || !event.pool->key.starts_with("cuda/");
}

OutputBits::Comparison OutputBits::compare(const CaseFinished& event) {
  std::map<int, std::string> hashes;
  for (const protocol::RankResult& rank : event.ranks) {
    if (rank.output_hash.empty()) return {};
    hashes[rank.rank] = rank.output_hash;
  }
  if (hashes.empty()) return {};
  std::vector<First>& runs = first_[event.id];
  const auto first = std::ranges::find(runs, event.c, &First::c);
  if (first == runs.end()) {
    runs.push_back({event.c, std::move(hashes)});
    return {};
  }
  Comparison out{.repeated = true, .other_ranks = {}};
  for (const auto& [rank, hash] : hashes) {
    const auto before = first->hashes.find(rank);
    if (before == first->hashes.end() || before->second != hash) out.other_ranks.push_back(rank);
  }
  return out;
}

}  // namespace cp_pool
