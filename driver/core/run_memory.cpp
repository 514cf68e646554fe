#include "driver/core/run_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "cases/backend_facts.h"

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

void OutputNames::add(std::size_t index, const Item& named) {
  std::string name = named.id;
  if (named.runs > 1) name += fmt::format(" (run {} of {})", named.run, named.runs);
  const int times = ++times_[name];
  if (times > 1) name += fmt::format(" (#{})", times);
  if (name != named.id) own_[index] = std::move(name);
}

std::string OutputNames::own_name(std::size_t index) const {
  const auto own = own_.find(index);
  return own == own_.end() ? "" : own->second;
}

void KnownMistakes::note(const Diagnosis& diagnosis, const std::string& case_id) {
  if (diagnosis.certainty == Certainty::unknown) return;
  if (diagnosis.certainty == Certainty::likely) ++likely_answers_;
  KnownMistake found{.certainty = diagnosis.certainty, .ids = {diagnosis.id}, .case_id = case_id};
  found.ids.insert(found.ids.end(), diagnosis.others.begin(), diagnosis.others.end());
  const bool again = std::ranges::any_of(known_, [&](const KnownMistake& earlier) {
    const auto is_found = [&](const std::string& id) { return std::ranges::find(found.ids, id) != found.ids.end(); };
    return earlier.certainty <= found.certainty && std::ranges::all_of(earlier.ids, is_found);
  });
  if (again) return;
  known_.insert(std::ranges::upper_bound(known_, found.certainty, {}, &KnownMistake::certainty), std::move(found));
  if (known_.size() > kMost) known_.pop_back();
}

std::vector<KnownMistake> KnownMistakes::for_next_case() const {
  std::vector<KnownMistake> out = known_;
  const bool is_power_of_four = std::has_single_bit(likely_answers_) && std::countr_zero(likely_answers_) % 2 == 0;
  if (is_power_of_four) {
    std::erase_if(out, [](const KnownMistake& one) { return one.certainty == Certainty::likely; });
  }
  return out;
}

}  // namespace cp_pool
