#include "worker/arrivals.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace cp_pool {

std::vector<int> Arrivals::absent(int world_size) const {
  std::vector<int> out;
  for (int rank = 0; rank < world_size; ++rank) {
    if (std::ranges::find(arrived_, rank, &CaseArrived::rank) == arrived_.end()) out.push_back(rank);
  }
  return out;
}

bool Arrivals::any_declined() const {
  return std::ranges::any_of(arrived_, [](const CaseArrived& arrived) { return !arrived.declined.empty(); });
}

std::string Arrivals::difference() const {
  struct Seen {
    int rank = 0;
    std::int64_t operations = 0;
  };
  std::vector<const CaseArrived*> by_rank;
  by_rank.reserve(arrived_.size());
  for (const CaseArrived& arrived : arrived_) by_rank.push_back(&arrived);
  std::ranges::sort(by_rank, {}, &CaseArrived::rank);
  std::map<std::pair<std::string, int>, Seen> first;  // keyed by the group's words and first rank
  const auto place = [](const CaseArrived& arrived) {
    return arrived.declined.empty() ? "ran the case" : "declined the case in " + arrived.declined;
  };
  for (const CaseArrived* arrived : by_rank) {
    if (arrived->declined != by_rank.front()->declined) {
      return fmt::format("rank {} {}, rank {} {}", arrived->rank, place(*arrived), by_rank.front()->rank,
                         place(*by_rank.front()));
    }
    for (const BegunInGroup& begun : arrived->begun) {
      const Seen own{arrived->rank, begun.operations};
      const Seen& seen = first.try_emplace({begun.group, begun.first_rank}, own).first->second;
      if (seen.operations == own.operations) continue;
      return fmt::format("rank {} has begun {} operations{}, rank {} has begun {}", own.rank, own.operations,
                         begun.group, seen.rank, seen.operations);
    }
  }
  return "";
}

}  // namespace cp_pool
