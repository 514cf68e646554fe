// A case that runs several times in a run (--repeat): which of its runs an event is of, and cases whose runs differ.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "driver/events.h"

namespace cp_pool {

// The ID, of a case that runs several times with the run: "ID (run 2 of 3)".
std::string case_name(const CaseFinished& event);

// For a case that an earlier run had run, too: "first run: fail: dq is wrong", on one line. Empty for other cases.
std::string first_run_text(const CaseFinished& event);
// "earlier runs: 2 pass, 1 fail (the oldest first)", and a newline; empty: none are known.
std::string earlier_runs_text(const CaseFinished& event);

class CaseRuns {
 public:
  void add(const CaseFinished& event);

  // "fail in 1 of 3", "fail in 1, crash in 2 of 3"; empty for a case whose runs ended alike, or that ran once.
  [[nodiscard]] std::string difference(const std::string& id) const;

  // Lines, each ended by a newline: the cases whose runs differ, of many the first. Empty if there are none.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, std::array<std::size_t, kCaseOutcomes>> counts_;  // by ID, of cases with several runs
};

}  // namespace cp_pool
