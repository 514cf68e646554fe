// Cases that run several times in a run (--repeat): the number of a run, and cases whose runs ended differently.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "driver/core/events.h"

namespace cp_pool {

// Returns the ID, followed by the number of the run if the case runs several times: "ID (run 2 of 3)".
std::string case_name(const CaseFinished& event);

// Returns the suite that reports show the case in: "cases" if it has none.
std::string suite_of(const CaseFinished& event);

// Returns "first run: fail: dq is wrong" on one line for a case that an earlier run had, too. Empty for other cases.
std::string first_run_text(const CaseFinished& event);
// Returns "earlier runs: 2 pass, 1 fail (the oldest first)" and a newline; empty if no earlier runs are known.
std::string earlier_runs_text(const CaseFinished& event);

class CaseRuns {
 public:
  void add(const CaseFinished& event);

  // Returns "fail in 1 of 3" or "fail in 1, crash in 2 of 3"; empty for a case that ran once or whose runs ended alike.
  [[nodiscard]] std::string difference(const std::string& id) const;

  // Returns lines, each ended by a newline, for the cases whose runs differ, limited to the first ones. Empty if there
  // are none.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, std::array<std::size_t, kCaseOutcomes>> counts_;  // by ID, for cases with several runs
};

}  // namespace cp_pool
