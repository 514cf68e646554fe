// A run as it is held against another one: of each case what came of it, its time, and how near it came to its bounds.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "cases/case.h"
#include "driver/events.h"

namespace cp_pool {

// Several runs of a case in one run (--repeat) are one here.
struct ComparedCase {
  Case c;
  std::size_t passed = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;
  std::size_t unjudged = 0;  // infra, cancelled, not-run
  std::size_t failed_as_expected = 0;
  // Of the runs of the case the worst: a failure, then one that nobody judged, a skip, a pass. Of equal ones the first.
  CaseOutcome outcome = CaseOutcome::pass;
  int badness = -1;                     // of that run
  std::string reason;                   // its own
  bool flaky = false;                   // it passed on a later try, or on some runs alone
  std::string verdict;                  // the kind of its last verdict; empty: none
  std::optional<double> ms;             // the least that a pass took
  std::optional<PerfFigures> perf;      // the fastest
  std::map<std::string, double> share;  // by tensor: the largest error / bound of a pass

  [[nodiscard]] bool passes() const { return is_judged() && failed == 0 && passed > 0; }
  [[nodiscard]] bool fails() const { return failed > 0; }
  [[nodiscard]] bool is_skipped() const { return is_judged() && skipped > 0 && failed == 0 && passed == 0; }
  [[nodiscard]] bool is_judged() const { return failed > 0 || unjudged == 0; }
};

struct ComparedRun {
  RunStarted header;
  RunFinished end;
  bool cut = false;                           // it has no end, or goes on: cases that it had not come to are not-run
  std::map<std::string, ComparedCase> cases;  // by ID
};

// Reads an events file; several runs in it are merged as by cp-pool report. Throws CommandError (bad_input).
ComparedRun read_compared_run(const std::filesystem::path& events_file);

// The run that these events are of, from run_started to run_finished.
ComparedRun compared_run(const std::vector<Event>& events);

}  // namespace cp_pool
