// Which ranks have come to the end of a case, and whether they have begun the same communication on their way.
#pragma once

#include <string>
#include <vector>

#include "worker/rank_messages.h"

namespace cp_pool {

class Arrivals {
 public:
  void clear() { arrived_.clear(); }
  void add(const CaseArrived& arrived) { arrived_.push_back(arrived); }

  [[nodiscard]] bool none() const { return arrived_.empty(); }
  [[nodiscard]] bool all_of(int world_size) const { return static_cast<int>(arrived_.size()) == world_size; }
  [[nodiscard]] std::vector<int> absent(int world_size) const;  // in order
  // "rank 3 has begun 2 operations of its inner group, rank 2 has begun 1"; empty: no group has such ranks.
  [[nodiscard]] std::string difference() const;

 private:
  std::vector<CaseArrived> arrived_;
};

}  // namespace cp_pool
