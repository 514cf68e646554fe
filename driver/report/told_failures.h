// Remembers which failures have been shown in full, so that each is shown once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "driver/core/events.h"
#include "driver/core/failure_kind.h"

namespace cp_pool {

class ToldFailures {
 public:
  // Counts the event as shown. Returns the ID of the first case that failed in the same way (FailureKinds); empty if
  // this is the first.
  std::string first_like(const CaseFinished& event);

  // Counts the event as shown. Returns the first pool that did not start for the same reason, such as "cpu/2 #1"; empty
  // if this is the first. Reasons are the same if the last words of the dead ranks are the same apart from digits.
  std::string first_like(const PoolRetired& event);

  // True if a case that failed on the pool has already shown why the pool is given up.
  [[nodiscard]] bool says_why(const PoolRetired& event) const;

  // Returns the part of a reason that was not shown yet for a pool that did not start: "the pool cannot start".
  [[nodiscard]] std::string untold_part(const std::string& reason) const;

 private:
  FailureKinds kinds_;
  std::vector<std::string> firsts_;             // for each kind the ID of its first case
  std::map<std::string, std::string> starts_;   // essence of the reason -> pool
  std::map<std::string, std::string> reasons_;  // pool -> reason of the last case that failed on it
};

}  // namespace cp_pool
