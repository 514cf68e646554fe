#include "driver/output_bits.h"

#include "cases/backend_facts.h"
#include "cases/case_names.h"

namespace cp_pool {

bool promises_bits(const CaseFinished& event) {
  const Case* const c = event.payload->attention();
  if (c == nullptr) return false;
  const bool on_gpu = event.pool && event.pool->key.starts_with("cuda/");
  // Of code that is not cp-pool's own only the forward is expected to repeat its bits on GPUs, as the worker does.
  const bool foreign = !event.backend.empty() && !parse_name<Backend>(event.backend);
  if (on_gpu && foreign) return c->deterministic || !c->training;
  return promises_bits(*c, on_gpu);
}

std::optional<std::vector<int>> OutputBits::other_ranks(const CaseFinished& event) {
  std::map<int, std::string> hashes;
  for (const protocol::RankResult& rank : event.ranks) {
    if (rank.output_hash.empty()) return std::nullopt;
    hashes[rank.rank] = rank.output_hash;
  }
  if (hashes.empty()) return std::nullopt;
  const auto [first, is_first] = first_.try_emplace(event.id, hashes);
  if (is_first) return std::nullopt;
  std::vector<int> others;
  for (const auto& [rank, hash] : hashes) {
    const auto before = first->second.find(rank);
    if (before == first->second.end() || before->second != hash) others.push_back(rank);
  }
  return others;
}

}  // namespace cp_pool
