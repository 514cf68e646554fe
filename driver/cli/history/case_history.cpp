#include "driver/cli/history/case_history.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <numeric>
#include <variant>

#include "driver/cli/history/failed_cases.h"

namespace cp_pool {

namespace {

// The key that sorts cases, the least first.
struct Place {
  bool went_well = true;
  double negative_ms = 0;

  auto operator<=>(const Place&) const = default;
};

Place place_of(const Item& named, const CaseHistory& history) {
  const auto known = history.duration_ms.find(named.id);
  const double ms = known == history.duration_ms.end() ? std::numeric_limits<double>::infinity() : known->second;
  return {.went_well = !history.failed.contains(named.id), .negative_ms = -ms};
}

}  // namespace

CaseHistory read_case_history(const std::filesystem::path& events_file) {
  CaseHistory history;
  const auto take_time = [&](const Event& event) {
    const auto* finished = std::get_if<CaseFinished>(&event);
    if (finished != nullptr && was_reached(finished->outcome)) {
      history.duration_ms[finished->id] = finished->duration_ms;
    }
  };
  history.failed = read_failed_cases(events_file, take_time).ids;
  return history;
}

CaseHistory case_history(const CaseTrends& trends, std::span<const Item> cases, const std::string& implementation) {
  CaseHistory history;
  for (const Item& named : cases) {
    const std::string own = implementation_of(named);
    const auto earlier = trends.find({named.id, own.empty() ? implementation : own});
    if (earlier == trends.end()) continue;
    if (!went_well(earlier->second.back().outcome)) history.failed.insert(named.id);
    history.duration_ms[named.id] = earlier->second.back().duration_ms;
  }
  return history;
}

std::vector<std::size_t> ordered_by_history(std::span<const Item> cases, const CaseHistory& history) {
  std::vector<Place> own;
  std::vector<std::string> groups;
  std::map<std::string, std::pair<Place, std::size_t>> of_group;  // its least place and first listed case
  for (std::size_t i = 0; i < cases.size(); ++i) {
    own.push_back(place_of(cases[i], history));
    groups.push_back(cases[i].payload->group());
    const auto [group, is_new] = of_group.try_emplace(groups.back(), own.back(), i);
    if (!is_new) group->second.first = std::min(group->second.first, own.back());
  }
  std::vector<std::size_t> order(cases.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const auto& group_a = of_group.at(groups[a]);
    const auto& group_b = of_group.at(groups[b]);
    return group_a == group_b ? own[a] < own[b] : group_a < group_b;
  });
  return order;
}

}  // namespace cp_pool
