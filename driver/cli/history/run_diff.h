// Compares two runs: `cp-pool diff` (docs/command_line.md says which changes count).
#pragma once

#include <algorithm>
#include <filesystem>

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
  bool cut = false;                           // it has no end: cases that it has not started are not-run
  std::map<std::string, ComparedCase> cases;  // by ID
};

// Reads an events file. Several runs in it are merged as `cp-pool report` does. Throws CommandError (bad_input).
ComparedRun read_compared_run(const std::filesystem::path& events_file);

// Builds the run from its events, which begin with run_started and end with run_finished.
ComparedRun compared_run(const std::vector<Event>& events);

enum class ChangeKind {
  new_failure,    // it fails now, and did not before
  fixed,          // it passes now, and failed before
  still_failing,  // it failed before, and still does
  flaky,          // it passes on a later try, or in some of its runs only
  not_judged,     // it was judged before, and is not judged now
  slower,
  faster,
  error_grew,  // the error of a tensor grew towards its bound
  skip_came,   // it is skipped now, and was not before
  skip_went,   // it was skipped before, and is not now
  added,       // the earlier run did not have it
  removed,     // the later run does not have it
};
template <>
inline constexpr auto kNames<ChangeKind> = kSpelledNames<ChangeKind::removed, '-'>;

// A change of one case; a case may have several.
struct Change {
  ChangeKind kind = ChangeKind::new_failure;
  std::string id;
  std::optional<CaseOutcome> before = std::nullopt;  // nullopt if that run does not have the case
  std::optional<CaseOutcome> after = std::nullopt;
  std::string reason = {};                   // of the later outcome; for skip_went, of the earlier one
  std::string verdict = {};                  // the verdict of a failure that was triaged
  std::string tensor = {};                   // for error_grew
  std::optional<double> was = std::nullopt;  // milliseconds; for error_grew, error / bound
  std::optional<double> is = std::nullopt;

  static constexpr auto fields() {
    return FieldList{optional<&Change::kind, &Change::id, &Change::before, &Change::after>(),
                     sparse<&Change::reason, &Change::verdict, &Change::tensor, &Change::was, &Change::is>()};
  }
};

// How much the durations of cases that pass in both runs differ overall.
struct TimeDrift {
  std::size_t cases = 0;
  double ratio = 1;  // the median of later duration / earlier duration
  double noise = 1;  // a case counts as changed if its ratio differs from the median by more than this factor

  static constexpr auto fields() {
    return FieldList{optional<&TimeDrift::cases, &TimeDrift::ratio, &TimeDrift::noise>()};
  }
};

struct RunDiff {
  std::vector<Change> changes;     // by kind, then by ID
  std::size_t common = 0;          // cases in both
  std::size_t not_alike = 0;       // of these, cases that are not known to be of the same implementation in both
  std::optional<TimeDrift> drift;  // nullopt if no times are compared
  std::string why_no_figures;      // why neither times nor errors are compared; empty if they are

  [[nodiscard]] std::size_t count(ChangeKind kind) const {
    return static_cast<std::size_t>(std::ranges::count(changes, kind, &Change::kind));
  }
};

RunDiff diff_runs(const ComparedRun& before, const ComparedRun& after);

}  // namespace cp_pool
