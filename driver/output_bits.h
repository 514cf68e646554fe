// Whether several runs of one case gave the same bits (cp-pool run --repeat).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

// The backward kernels of libraries repeat their bits only where they are asked to; on CPU ranks math stands for them.
bool promises_bits(const CaseFinished& event);

class OutputBits {
 public:
  struct Comparison {
    bool repeated = false;         // there was an earlier run of this case, the same in every field
    std::vector<int> other_ranks;  // whose outputs have other bits than in the first run
  };
  // Empty where a rank gives no hash of its outputs.
  Comparison compare(const CaseFinished& event);

 private:
  struct First {
    Case c;
    std::map<int, std::string> hashes;  // by rank: a worker may list them in any order
  };
  std::map<std::string, std::vector<First>> first_;  // by ID, which two cases of a stream may share
};

}  // namespace cp_pool
