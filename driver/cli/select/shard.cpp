#include "driver/cli/select/shard.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_groups.h"
#include "cases/text_hash.h"
#include "driver/core/payload.h"

namespace cp_pool {
namespace {

constexpr double kOfEveryCase = 1e10;    // operations: added for every rank of a case, whatever its size
constexpr std::size_t kUnitsAShard = 4;  // per shard at least; with fewer, shards would be uneven

// Estimates the cost of a case, roughly. The mask is ignored, as the reference and most checks compute all pairs.
double cost(const Case& c) {
  const double pairs = static_cast<double>(c.batch) * static_cast<double>(c.heads) * static_cast<double>(c.seqlen_q) *
                       static_cast<double>(c.seqlen_kv);
  return world_size(c) * kOfEveryCase + c.group * pairs * static_cast<double>(c.head_dim_qk + c.head_dim_v);
}

struct Unit {
  double cost = 0;
  std::vector<std::size_t> cases;
};

// Returns the cost of each case. The estimate of a case without a known time is scaled as the other cases took,
// compared with their estimates.
std::vector<double> costs_of(const std::vector<const MatrixCase*>& cases, const CaseTimes& times) {
  std::vector<double> costs;
  costs.reserve(cases.size());
  double known_ms = 0;
  double known_cost = 0;
  for (const MatrixCase* each : cases) {
    costs.push_back(each->call ? kOfEveryCase * each->call->cp_size : cost(each->c));
    const auto known = times.ms.find(each->id);
    if (known == times.ms.end()) continue;
    known_ms += known->second;
    known_cost += costs.back();
  }
  if (known_cost <= 0) return costs;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto known = times.ms.find(cases[i]->id);
    costs[i] = known == times.ms.end() ? costs[i] * known_ms / known_cost : known->second;
  }
  return costs;
}

// Makes units of cases. If `by_problem`, cases that share expected results are one unit, else each case is one.
std::vector<Unit> units_of(const std::vector<const MatrixCase*>& cases, const std::vector<double>& costs,
                           bool by_problem) {
  std::vector<Unit> units;
  std::map<std::string, std::size_t> unit_of;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::size_t place = units.size();
    if (by_problem && !cases[i]->call) {
      place = unit_of.try_emplace(Payload(cases[i]->c)->group(), units.size()).first->second;
    }
    if (place == units.size()) units.emplace_back();
    units[place].cost += costs[i];
    units[place].cases.push_back(i);
  }
  return units;
}

// Splits units that cost more than a shard's part, since their shard would be the last to end.
std::vector<Unit> split_expensive(const std::vector<Unit>& units, const std::vector<double>& costs,
                                  std::size_t shards) {
  const double total =
      std::accumulate(units.begin(), units.end(), 0.0, [](double sum, const Unit& unit) { return sum + unit.cost; });
  std::vector<Unit> out;
  for (const Unit& unit : units) {
    if (unit.cost <= total / static_cast<double>(shards)) {
      out.push_back(unit);
      continue;
    }
    for (const std::size_t i : unit.cases) out.push_back({.cost = costs[i], .cases = {i}});
  }
  return out;
}

}  // namespace

std::optional<Shard> parse_shard(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto index = parse_number<std::size_t>(text.substr(0, slash));
  const auto count = parse_number<std::size_t>(text.substr(slash + 1));
  if (!index || !count || *index < 1 || *index > *count) return std::nullopt;
  return Shard{.index = *index, .count = *count};
}

std::string hash_of_all(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  return text_hash(fmt::format("{}", fmt::join(texts, "\n")));
}

std::vector<std::size_t> deal_out(const std::vector<const MatrixCase*>& cases, std::size_t shards,
                                  const CaseTimes& times) {
  const std::vector<double> costs = costs_of(cases, times);
  std::vector<Unit> units = split_expensive(units_of(cases, costs, true), costs, shards);
  if (units.size() / kUnitsAShard < shards) units = units_of(cases, costs, false);
  // Deals out the most expensive unit first, each to the shard with the least cost so far.
  std::ranges::stable_sort(units, std::ranges::greater{}, &Unit::cost);
  // The user chooses the number of shards, so memory is used for no more than there are units.
  std::vector<double> load(std::min(shards, units.size()), 0);
  std::vector<std::size_t> shard_of(cases.size());
  for (const Unit& unit : units) {
    const auto least = std::ranges::min_element(load);
    *least += unit.cost;
    for (const std::size_t i : unit.cases) shard_of[i] = static_cast<std::size_t>(least - load.begin());
  }
  return shard_of;
}

}  // namespace cp_pool
