// What the terminal has said in full, so that it says it once.
#pragma once

#include <map>
#include <string>

#include "driver/events.h"

namespace cp_pool {

class ToldFailures {
 public:
  // Each takes what it is asked about for told from then on.

  // The ID of the first case that failed in the same way (failure_signature); empty: this is the first.
  std::string first_like(const CaseFinished& event);

  // Of a pool that did not start: the first that did not for the same reason, "cpu/2 #1"; empty: this is the first.
  // Reasons are the same if the dead said the same last, apart from digits.
  std::string first_like(const PoolRetired& event);

  // Whether a case that failed on the pool has said why it is given up.
  [[nodiscard]] bool says_why(const PoolRetired& event) const;

  // A reason why cases were not judged without what was said of pools that did not start: "the pool cannot start".
  [[nodiscard]] std::string untold_part(const std::string& reason) const;

 private:
  std::map<std::string, std::string> cases_;    // signature -> ID
  std::map<std::string, std::string> starts_;   // what the reason comes down to -> pool
  std::map<std::string, std::string> reasons_;  // pool -> reason of the last case that failed on it
};

}  // namespace cp_pool
