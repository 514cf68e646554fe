#include "cases/search/skips.h"

#include <algorithm>

#include <fmt/format.h>

#include "cases/lengths.h"
#include "cases/search/traits.h"

namespace cp_pool::search {
namespace {

constexpr std::size_t kPlainCases = 200;  // skipped cases after which other than plain cases are tried

// Whether the case has none of the features that few workers support but those of `plain`.
bool is_plain(const Case& c, const Case& plain) {
  return c.softmax == plain.softmax && c.bias == plain.bias && c.max_logit == plain.max_logit &&
         c.window == plain.window && c.chunk == plain.chunk && c.mask == plain.mask && c.softcap == plain.softcap &&
         c.fp8 == plain.fp8 && c.input_scale == plain.input_scale && c.score_offset == plain.score_offset &&
         c.deterministic == plain.deterministic && c.strided == plain.strided && c.replicated == plain.replicated &&
         c.all_queries == plain.all_queries && c.inner == plain.inner && c.group == plain.group &&
         keys_like_queries(c) && c.head_dim_qk == c.head_dim_v;
}

// Calls the function for every pair of the sorted numbers.
template <typename Function>
void for_each_pair(const std::vector<std::size_t>& sorted, Function&& function) {
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = i + 1; j < sorted.size(); ++j) function(std::pair{sorted[i], sorted[j]});
  }
}

}  // namespace

void Skips::Known::blame(std::string_view why) {
  if (blamed == 0 && !why.empty()) reason = why;
  ++blamed;
}

std::vector<Skips::Trait> Skips::number(const std::vector<std::string>& names) {
  std::vector<Trait> out;
  for (const std::string& trait : names) {
    const auto [entry, is_new] = numbers_.emplace(trait, traits_.size());
    if (is_new) traits_.push_back({.name = entry->first, .reason = {}});
    out.push_back(entry->second);
  }
  std::ranges::sort(out);
  return out;
}

const Skips::Known* Skips::find(const std::string& trait) const {
  const auto entry = numbers_.find(trait);
  return entry == numbers_.end() ? nullptr : &traits_[entry->second];
}

void Skips::judged(const Case& c) {
  any_judged_ = true;
  const std::vector<Trait> traits = number(traits_of(c));
  for (const Trait trait : traits) traits_[trait].judged = true;
  for_each_pair(traits, [this](const Pair& pair) { judged_pairs_.insert(pair); });
  std::erase_if(blamed_pairs_, [this](const auto& entry) { return judged_pairs_.contains(entry.first); });
}

void Skips::skipped(const Case& c, std::string_view reason) {
  ++skipped_;
  const std::vector<std::string> all = traits_of(c);
  const std::vector<std::string> named = traits_refused_by(reason, all);
  const std::vector<Trait> traits = number(named.empty() ? all : named);
  std::vector<Trait> suspects;
  for (const Trait trait : traits) {
    ++traits_[trait].skipped;
    if (traits_[trait].reason.empty()) traits_[trait].reason = reason;
    if (!traits_[trait].judged) suspects.push_back(trait);
  }
  if (suspects.size() == 1 || !named.empty()) {
    for (const Trait suspect : suspects) traits_[suspect].blame(reason);
  }
  if (!suspects.empty()) return;
  std::vector<Pair> pairs;
  for_each_pair(traits, [&](const Pair& pair) {
    if (!judged_pairs_.contains(pair)) pairs.push_back(pair);
  });
  if (pairs.size() != 1) return;
  Known& known = blamed_pairs_[pairs.front()];
  ++known.skipped;
  known.blame(reason);
}

bool Skips::leaves_out(const Case& c) const {
  if (!any_judged_ && skipped_ > 0 && skipped_ < kPlainCases && !is_plain(c, plain_)) return true;
  std::size_t suspects = 0;
  const std::vector<std::string> traits = traits_of(c);
  for (const std::string& trait : traits) {
    const Known* const known = find(trait);
    if (known == nullptr) continue;
    if (known->left_out()) return true;
    suspects += known->suspect() ? 1 : 0;
  }
  if (any_judged_ && suspects > 1) return true;
  return std::ranges::any_of(blamed_pairs_, [&](const auto& entry) {
    const auto& [pair, known] = entry;
    return known.left_out() && std::ranges::binary_search(traits, traits_[pair.first].name) &&
           std::ranges::binary_search(traits, traits_[pair.second].name);
  });
}

std::vector<Skips::Unjudged> Skips::unjudged() const {
  std::vector<Unjudged> out;
  for (const Known& known : traits_) {
    if (known.suspect()) out.push_back({.what = known.name, .cases = known.skipped, .reason = known.reason});
  }
  for (const auto& [pair, known] : blamed_pairs_) {
    if (!known.left_out()) continue;
    const auto [one, other] = std::minmax(traits_[pair.first].name, traits_[pair.second].name);
    out.push_back({.what = fmt::format("{} with {}", one, other), .cases = known.skipped, .reason = known.reason});
  }
  return out;
}

}  // namespace cp_pool::search
