// Tries of cases that were not their last (--retries): which cases passed on a later one, and what came of each try.
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

  // Of a case, in their order; empty if its first try was its last.
  [[nodiscard]] const std::vector<CaseFinished>& of(std::size_t index) const;

  // Lines, each ended by a newline: the cases that are flaky, of many the first, with what came of each try; how many
  // cases were run again and did not pass. Empty if there are none.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::size_t, std::vector<CaseFinished>> tries_;  // by index
  std::vector<std::string> flaky_;                          // a line each, without its newline
  std::size_t in_vain_ = 0;                                 // cases that had further tries, of which none passed
};

// "flaky: crash, then pass on try 2"; "crash, then error on try 2" of a case that did not pass. Empty for a case that
// was tried once.
std::string tries_text(const CaseFinished& event, const std::vector<CaseFinished>& tries);

}  // namespace cp_pool
