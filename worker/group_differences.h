// Compares what ranks have begun: operations on groups of the code under test, and of cp-pool's own communicators.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "worker/rank_messages.h"

namespace cp_pool {

// Returns the first differences between these ranks in the order of their operations, such as "rank 2 left without
// entering all_gather #7; the others wait in it"; empty if there are none. A collective is counted among all
// collectives of its group, a message among those from one rank to another. waited: the ranks had all the time of the
// case, so that a rank which has not begun an operation of the others is a difference too.
std::string group_differences(const std::vector<GroupHistory>& histories, bool waited);

// Returns the last operation that the rank has begun, as "all_gather #7 of float32 [4, 16], on ranks 0, 1"; empty if it
// has begun none.
std::string last_group_operation(const GroupHistory& history);

// Returns the ranks of which `entries` has none, ascending. rank: the member of an entry that is its rank.
template <typename Entry>
std::vector<int> ranks_without(const std::vector<Entry>& entries, int Entry::* rank, int world_size) {
  std::vector<int> out;
  for (int each = 0; each < world_size; ++each) {
    if (std::ranges::find(entries, each, rank) == entries.end()) out.push_back(each);
  }
  return out;
}

// Returns the entries in the order of their ranks.
template <typename Entry>
std::vector<const Entry*> sorted_by_rank(const std::vector<Entry>& entries) {
  std::vector<const Entry*> out;
  out.reserve(entries.size());
  for (const Entry& entry : entries) out.push_back(&entry);
  std::ranges::sort(out, {}, &Entry::rank);
  return out;
}

// Records which ranks have reached the end of a case, and compares the communication that they have begun.
class Arrivals {
 public:
  void clear() { arrived_.clear(); }
  void add(const CaseArrived& arrived) { arrived_.push_back(arrived); }

  [[nodiscard]] bool none() const { return arrived_.empty(); }
  [[nodiscard]] bool all_of(int world_size) const { return static_cast<int>(arrived_.size()) == world_size; }
  [[nodiscard]] std::vector<int> absent(int world_size) const {
    return ranks_without(arrived_, &CaseArrived::rank, world_size);
  }
  [[nodiscard]] bool any_declined() const;  // whether a rank has declined the case
  // Returns "rank 3 has begun 2 operations of its inner group, rank 2 has begun 1" for the first difference between
  // ranks of one group, or which of two ranks has declined the case; empty if there is no difference.
  [[nodiscard]] std::string difference() const;

 private:
  std::vector<CaseArrived> arrived_;
};

}  // namespace cp_pool
