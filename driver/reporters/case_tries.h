// Tries before the last one (--retries): which cases passed on a later try, and the outcome of each try.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

class CaseTries {
 public:
  void add(const CaseTried& event);
  void add(const CaseFinished& event);

  // Returns the earlier tries of the case, in order; empty if its first try was its last.
  [[nodiscard]] const std::vector<CaseFinished>& of(std::size_t index) const;

  // Returns lines, each ended by a newline: the flaky cases with the outcome of each try, limited to the first ones,
  // and the number of cases that were run again without a pass. Empty if there are none.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::size_t, std::vector<CaseFinished>> tries_;  // by index
  std::vector<std::string> flaky_;                          // one line each, without its newline
  std::size_t in_vain_ = 0;                                 // number of cases whose further tries did not pass either
};

// Returns "flaky: crash, then pass on try 2", or "crash, then error on try 2" for a case that did not pass. Empty for a
// case that was tried once.
std::string tries_text(const CaseFinished& event, const std::vector<CaseFinished>& tries);

}  // namespace cp_pool
