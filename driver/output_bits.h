// Whether the runs of a case gave the same bits (cp-pool run --repeat).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

// promises_bits (cases/backend_facts.h) on the pool that ran it.
bool promises_bits(const CaseFinished& event);

class OutputBits {
 public:
  // The ranks whose outputs have other bits than in the first run of this ID; nullopt: this is the first, or a rank
  // gives no hash of its outputs.
  std::optional<std::vector<int>> other_ranks(const CaseFinished& event);

 private:
  std::map<std::string, std::map<int, std::string>> first_;  // by ID, then rank: a worker may list them in any order
};

}  // namespace cp_pool
