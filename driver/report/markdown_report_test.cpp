#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/report/notices.h"
#include "driver/report/reports.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string written(const std::vector<Event>& events) {
  ReportedRun run;
  for (const Event& event : events) run.on_event(event);
  return markdown_report(run.report());
}

TEST(MarkdownSummary, HasTheCommandThatRerunsAllFailures) {
  RunStarted run = run_started(2);
  run.rerun_failed = "cp-pool run --rerun-failed e";
  EXPECT_THAT(written({run, failed_case(0, "a"), failed_case(1, "b"), run_finished({0, 2, 0, 0, 0, 0, 0, 0, 0})}),
              HasSubstr("Rerun all of them:\n\n```text\ncp-pool run --rerun-failed e\n```\n"));
}

TEST(MarkdownSummary, OfEqualFailuresTheFirstHasDetails) {
  const std::string text =
      written({run_started(2), failed_case(0, "a"), failed_case(1, "b"), run_finished({0, 2, 0, 0, 0, 0, 0, 0, 0})});
  EXPECT_THAT(text, AllOf(HasSubstr("| fail | `b` | rank 1: dq | 0.031 / 0.012 | the same as `a` |\n"),
                          HasSubstr("<summary>fail a</summary>"), Not(HasSubstr("<summary>fail b</summary>"))));
}

TEST(MarkdownSummary, FitsWhatGithubTakesAndSaysWhatIsLeftOut) {
  std::vector<Event> events{run_started(1000)};
  for (std::size_t i = 0; i < 1000; ++i) {
    CaseFinished failed = failed_case(i, "case-" + std::to_string(i) + std::string(200, 'x'));
    failed.reason = std::to_string(i) + std::string(40000, '|');
    failed.checks.back().tensor = "tensor " + std::to_string(i);  // each failure is of another kind
    failed.stderr_tails = {{.rank = 0, .text = std::string(4096, '`'), .fenced = true}};
    events.emplace_back(failed);
  }
  events.emplace_back(run_finished({0, 1000, 0, 0, 0, 0, 0, 0, 0}));
  const std::string text = written(events);
  EXPECT_LT(text.size(), std::size_t{1} << 20U);
  EXPECT_GT(text.size(), std::size_t{500} << 10U) << "the room is used";
  EXPECT_THAT(text, AllOf(HasSubstr("### 1000 failed\n"), HasSubstr("\nand 800 more\n"),
                          HasSubstr(" more do not fit here.\n"), HasSubstr("### Slowest\n")));
}

TEST(MarkdownSummary, AnInterruptedRunSaysSo) {
  RunFinished end = run_finished({1, 0, 0, 0, 0, 0, 0, 1, 0});
  end.interrupted = true;
  EXPECT_THAT(written({run_started(2), finished(0, "a", CaseOutcome::pass), end}),
              AllOf(HasSubstr("Interrupted: the run was stopped before its end.\n"), Not(HasSubstr("failed"))));
}

}  // namespace
}  // namespace cp_pool::test
