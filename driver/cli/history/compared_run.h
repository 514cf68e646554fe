// A run for comparison with another one: the outcome and duration of each case, and how near its errors came to their
// bounds.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "cases/case.h"
#include "driver/core/events.h"

namespace cp_pool {

// A case that --repeat ran several times is one ComparedCase.
struct ComparedCase {
  Payload payload;
  std::string implementation;  // empty: unknown
  std::size_t passed = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;
  std::size_t unjudged = 0;  // infra, cancelled, not-run
  std::size_t failed_as_expected = 0;
  // The worst outcome of the runs of the case: a failure is worse than a run without a verdict, then come a skip and a
  // pass. Of equally bad runs the first counts.
  CaseOutcome outcome = CaseOutcome::pass;
  int badness = -1;                     // of the run that `outcome` comes from
  std::string reason;                   // the reason of that run
  bool flaky = false;                   // it passed on a later try, or in some of its runs only
  std::string verdict;                  // the kind of its last verdict; empty if there is none
  std::optional<double> ms;             // duration of the fastest pass
  std::optional<PerfFigures> perf;      // of the fastest pass
  std::map<std::string, double> share;  // the largest error / bound of a pass, by tensor

  [[nodiscard]] bool passes() const { return is_judged() && failed == 0 && passed > 0; }
  [[nodiscard]] bool fails() const { return failed > 0; }
  [[nodiscard]] bool is_skipped() const { return is_judged() && skipped > 0 && failed == 0 && passed == 0; }
  [[nodiscard]] bool is_judged() const { return failed > 0 || unjudged == 0; }
};

struct ComparedRun {
  RunStarted header;
  RunFinished end;
  bool cut = false;                           // it has no end, or goes on: cases that it has not started are not-run
  std::map<std::string, ComparedCase> cases;  // by ID
};

// Reads an events file. Several runs in it are merged as `cp-pool report` does. Throws CommandError (bad_input).
ComparedRun read_compared_run(const std::filesystem::path& events_file);

// Builds the run from its events, which begin with run_started and end with run_finished.
ComparedRun compared_run(const std::vector<Event>& events);

}  // namespace cp_pool
