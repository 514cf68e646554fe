// Records which ranks have reached the end of a case, and compares the communication that they have begun.
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
  [[nodiscard]] std::vector<int> absent(int world_size) const;  // sorted
  [[nodiscard]] bool any_declined() const;                      // whether a rank has declined the case
  // Returns "rank 3 has begun 2 operations of its inner group, rank 2 has begun 1" for the first difference between
  // ranks of one group, or which of two ranks has declined the case; empty if there is no difference.
  [[nodiscard]] std::string difference() const;

 private:
  std::vector<CaseArrived> arrived_;
};

}  // namespace cp_pool
