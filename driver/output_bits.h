// Compares the output bits of several runs of a case (cp-pool run --repeat).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

// Whether the backend promises the same bits in every run of the case on the pool that ran it (cases/backend_facts.h).
bool promises_bits(const CaseFinished& event);

class OutputBits {
 public:
  // Returns the ranks whose outputs have other bits than in the first run of this ID. nullopt if this is the first run,
  // or if a rank gives no hash of its outputs.
  std::optional<std::vector<int>> other_ranks(const CaseFinished& event);

 private:
  // Hashes of the first run by ID and rank; a worker may list ranks in any order.
  std::map<std::string, std::map<int, std::string>> first_;
};

}  // namespace cp_pool
