#include "driver/cli/history/compared_run.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "driver/cli/history/merged_runs.h"
#include "driver/log/run_log.h"
#include "driver/report/failure_text.h"
#include "driver/report/file_lock.h"

namespace cp_pool {

namespace {

// Ranks outcomes: a larger number is worse.
int badness(const CaseFinished& event) {
  if (is_failure(event)) return 3;
  if (!went_well(event)) return 2;
  return event.outcome == CaseOutcome::pass ? 0 : 1;
}

void add_pass(const CaseFinished& event, ComparedCase& into) {
  ++into.passed;
  into.ms = std::min(into.ms.value_or(event.duration_ms), event.duration_ms);
  if (event.perf && (!into.perf || event.perf->ms() < into.perf->ms())) into.perf = event.perf;
  for (const Check& check : event.checks) {
    if (!check.measured || !(check.bound > 0)) continue;
    double& share = into.share[check.tensor];
    share = std::max(share, check.error / check.bound);
  }
}

void add(const CaseFinished& event, ComparedCase& into) {
  const int bad = badness(event);
  if (bad > into.badness) {
    into.badness = bad;
    into.payload = event.payload;
    into.outcome = event.outcome;
    into.reason = passed_unexpectedly(event) ? expected_text(event) : event.reason;
  }
  into.flaky |= event.flaky;
  if (is_failure(event)) {
    ++into.failed;
  } else if (failed_as_expected(event)) {
    ++into.failed_as_expected;
  } else if (event.outcome == CaseOutcome::pass) {
    add_pass(event, into);
  } else if (event.outcome == CaseOutcome::skip) {
    ++into.skipped;
  } else {
    ++into.unjudged;
  }
}

}  // namespace

ComparedRun compared_run(const std::vector<Event>& events) {
  ComparedRun run;
  run.header = std::get<RunStarted>(events.front());
  run.end = std::get<RunFinished>(events.back());
  for (const Event& event : events) {
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      ComparedCase& of_case = run.cases[finished->id];
      add(*finished, of_case);
      of_case.implementation = implementation_of(run.header, *finished);
    }
    if (const auto* verdict = std::get_if<CaseVerdict>(&event)) {
      run.cases[verdict->id].verdict = name_of(verdict->verdict.kind);
    }
  }
  for (auto& [id, each] : run.cases) each.flaky |= each.passed > 0 && each.failed > 0;
  return run;
}

ComparedRun read_compared_run(const std::filesystem::path& events_file) {
  MergedRuns runs;
  RunLog log;
  const auto writer = writer_of(events_file);  // asked first, as the run may end while its file is read
  log.read(events_file, "the run", [&](Event event, const auto& at) { runs.take(std::move(event), at); });
  log.expect_run(events_file);
  runs.end_file(writer);
  ComparedRun run = compared_run(runs.finish({}));
  run.cut = writer || !log.runs().back().end;
  return run;
}

}  // namespace cp_pool
