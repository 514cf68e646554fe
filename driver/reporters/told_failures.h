// Remembers which failures the terminal has shown in full, so that each is shown once.
#pragma once

#include <map>
#include <string>

#include "driver/events.h"

namespace cp_pool {

class ToldFailures {
 public:
  // Each function counts the event as shown from then on.

  // The ID of the first case that failed in the same way (failure_signature); empty: this is the first.
  std::string first_like(const CaseFinished& event);

  // The first pool that did not start for the same reason, e.g. "cpu/2 #1"; empty: this is the first. Reasons are the
  // same if the last words of the dead ranks are the same apart from digits.
  std::string first_like(const PoolRetired& event);

  // Whether a case that failed on the pool has said why it is given up.
  [[nodiscard]] bool says_why(const PoolRetired& event) const;

  // The part of a reason that was not shown yet for a pool that did not start: "the pool cannot start".
  [[nodiscard]] std::string untold_part(const std::string& reason) const;

 private:
  std::map<std::string, std::string> cases_;    // signature -> ID
  std::map<std::string, std::string> starts_;   // what the reason comes down to -> pool
  std::map<std::string, std::string> reasons_;  // pool -> reason of the last case that failed on it
};

}  // namespace cp_pool
