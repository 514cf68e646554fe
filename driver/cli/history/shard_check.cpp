#include "driver/cli/history/shard_check.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/cli/select/shard.h"
#include "driver/report/text_format.h"

namespace cp_pool {

namespace {

// The shards of one selection.
struct Shards {
  ShardOfRun of;                                     // with the index of one of them
  std::string title;                                 // of the selection
  std::map<std::size_t, std::set<std::string>> ids;  // by the index of the shard

  [[nodiscard]] std::vector<std::string> all_ids() const {
    std::vector<std::string> all;
    for (const auto& [index, of_shard] : ids) all.insert(all.end(), of_shard.begin(), of_shard.end());
    return all;
  }
  // Whether every selected case is in exactly one shard.
  [[nodiscard]] bool add_up() const { return hash_of_all(all_ids()) == of.ids; }
};

// Returns "quick" for "quick, shard 1/3 by times 0123".
std::string title_of_all(const std::string& title) {
  return title.substr(0, title.find(", shard "));
}

std::vector<Shards> selections_of(const std::vector<RunStarted>& runs) {
  using Key = std::tuple<std::size_t, std::size_t, std::string, std::string, std::string, std::string,
                         std::vector<std::string>>;
  std::map<Key, std::size_t> places;
  std::vector<Shards> out;
  for (const RunStarted& run : runs) {
    if (!run.shard) continue;
    const ShardOfRun& shard = *run.shard;
    const auto [place, is_new] = places.try_emplace(
        {shard.count, shard.cases, shard.ids, shard.hash, run.size, run.device, run.implementations}, out.size());
    if (is_new) out.push_back({.of = shard, .title = title_of_all(run.title), .ids = {}});
    out[place->second].ids[shard.index].insert(run.ids.begin(), run.ids.end());
  }
  return out;
}

std::string shards_text(const std::vector<std::size_t>& indices) {
  constexpr std::size_t kMost = 20;
  const std::size_t shown = std::min(indices.size(), kMost);
  std::string text =
      fmt::format("{} {}", indices.size() == 1 ? "shard" : "shards",
                  fmt::join(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < indices.size()) text += fmt::format(" and {} more", indices.size() - shown);
  return text;
}

// `others`: the shards of all selections.
std::string missing_of(const Shards& shards, const std::vector<Shards>& others) {
  std::vector<std::size_t> missing;
  std::vector<std::size_t> elsewhere;  // of these, shards of another selection of the same name
  for (std::size_t index = 1; index <= shards.of.count; ++index) {
    if (shards.ids.contains(index)) continue;
    missing.push_back(index);
    const bool other = std::ranges::any_of(others, [&](const Shards& each) {
      return each.of.count == shards.of.count && each.title == shards.title && each.ids.contains(index);
    });
    if (other) elsewhere.push_back(index);
  }
  const std::vector<std::string> all = shards.all_ids();
  const std::set<std::string> distinct(all.begin(), all.end());
  std::string cases = fmt::format("there are {} of {}", distinct.size(), count_of(shards.of.cases, "case"));
  const bool others_only = missing.empty() && all.size() == shards.of.cases && distinct.size() == all.size();
  if (others_only) cases = "they have cases that were not selected, and lack as many";
  if (all.size() > distinct.size()) cases += fmt::format(", {} in several shards", all.size() - distinct.size());
  if (missing.empty()) return fmt::format("the shards of {} do not add up: {}", shards.title, cases);
  std::string text = fmt::format("{} of {} of {} {} missing: {}", shards_text(missing), shards.of.count, shards.title,
                                 missing.size() == 1 ? "is" : "are", cases);
  if (!elsewhere.empty()) {
    text += fmt::format(" ({} {} of another selection)", shards_text(elsewhere), elsewhere.size() == 1 ? "is" : "are");
  }
  return text;
}

}  // namespace

std::vector<std::string> missing_of_shards(const std::vector<RunStarted>& runs) {
  std::vector<std::string> out;
  const std::vector<Shards> selections = selections_of(runs);
  for (const Shards& shards : selections) {
    if (!shards.add_up()) out.push_back(missing_of(shards, selections));
  }
  return out;
}

}  // namespace cp_pool
